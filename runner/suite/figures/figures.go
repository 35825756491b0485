// Package figures computes the statistics of a suite: rates with their uncertainty. [Compare] decides whether an agent
// does better in one suite than in another. The same results always give the same figures, since resampling uses a
// fixed seed.
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

// resamples is the number of samples of a bootstrap.
const resamples = 10_000

// Wilson is the score interval (Wilson 1927) of the rate passed / n, without continuity correction. For n = 0 it is
// 0 to 1.
func Wilson(passed, n int) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	p, m := float64(passed)/float64(n), float64(n)
	centre := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	in := Interval{max(0, centre-half), min(1, centre+half)}
	switch passed { // exact, in spite of rounding
	case 0:
		in.Low = 0
	case n:
		in.High = 1
	}
	return in
}

// PassAt is pass@k (Chen et al. 2021): the unbiased estimate of the probability that at least one of k attempts passes,
// given that passed of n did. It returns false unless 1 <= k <= n.
func PassAt(k, passed, n int) (float64, bool) {
	if k < 1 || k > n {
		return 0, false
	}
	return 1 - allAmong(k, n-passed, n), true
}

// PassHat is pass^k (Yao et al. 2024): the unbiased estimate of the probability that k attempts all pass, given that
// passed of n did. It returns false unless 1 <= k <= n.
func PassHat(k, passed, n int) (float64, bool) {
	if k < 1 || k > n {
		return 0, false
	}
	return allAmong(k, passed, n), true
}

// allAmong is the probability that k of n items, drawn without replacement, are all among m of them.
func allAmong(k, m, n int) float64 {
	p := 1.0
	for i := range k {
		p *= max(0, float64(m-i)) / float64(n-i)
	}
	return p
}

// Mean is the arithmetic mean of values; 0 if there are none.
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

// MeanInterval is the percentile bootstrap interval of the mean of values, such as the rates of tasks. Without values
// it is 0 to 0. With one value both ends are that value, which says nothing about uncertainty.
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

// quantile is the quantile q of sorted values, by linear interpolation (type 7 of Hyndman and Fan 1996).
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}
