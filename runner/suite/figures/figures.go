// Package figures has the statistics of a suite: rates with their uncertainty. All functions are pure; what resamples
// does so with a fixed seed, so that the same results give the same figures. [Compare] says whether one suite is better
// than another.
package figures

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a confidence interval of 95 %.
type Interval struct{ Low, High float64 }

// z is the 97.5 % quantile of the standard normal distribution.
const z = 1.959963984540054

// resamples is how often a bootstrap resamples.
const resamples = 10_000

// Wilson is the score interval of a rate of passed out of n (Wilson 1927), without continuity correction. For n = 0 it
// is 0 to 1.
func Wilson(passed, n int) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	p, m := float64(passed)/float64(n), float64(n)
	centre := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	in := Interval{max(0, centre-half), min(1, centre+half)}
	switch passed { // where rounding would leave a hair
	case 0:
		in.Low = 0
	case n:
		in.High = 1
	}
	return in
}

// PassAt is the unbiased estimate that at least one of k attempts passes, where passed of n did (Chen et al. 2021). It
// reports false for k > n, of which nothing is known.
func PassAt(k, passed, n int) (float64, bool) {
	if k < 1 || k > n {
		return 0, false
	}
	return 1 - ofAll(k, n-passed, n), true
}

// PassHat is the unbiased estimate that k attempts all pass, where passed of n did (Yao et al. 2024). It reports false
// for k > n.
func PassHat(k, passed, n int) (float64, bool) {
	if k < 1 || k > n {
		return 0, false
	}
	return ofAll(k, passed, n), true
}

// ofAll is the chance that k drawn from n without replacement are all among some of them.
func ofAll(k, some, n int) float64 {
	p := 1.0
	for i := range k {
		p *= max(0, float64(some-i)) / float64(n-i)
	}
	return p
}

// Mean is the mean of values; 0 for none.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// MeanInterval is the percentile bootstrap interval of the mean: it resamples the values, such as the rates of tasks.
// Without values it spans nothing, and of one value nothing is known but the value.
func MeanInterval(values []float64) Interval {
	if len(values) == 0 {
		return Interval{}
	}
	random := rand.New(rand.NewPCG(1, uint64(len(values))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range values {
			sum += values[random.IntN(len(values))]
		}
		means[i] = sum / float64(len(values))
	}
	slices.Sort(means)
	return Interval{quantile(means, 0.025), quantile(means, 0.975)}
}

// quantile interpolates between the sorted values (type 7 of Hyndman and Fan).
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}
