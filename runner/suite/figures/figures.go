package figures

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Interval is a confidence interval of 95 %.
type Interval struct{ Low, High float64 }

const (
	z975 = 1.959963984540054  // the 97.5 % quantile of the standard normal distribution
	z80  = 0.8416212335729143 // the 80 % quantile
)

// student is the 97.5 % quantile of Student's distribution with df degrees of freedom.
func student(df int) float64 {
	x := mathext.InvRegIncBeta(float64(df)/2, 0.5, 0.05)
	return math.Sqrt(float64(df) * (1 - x) / x)
}

// MinTasks is the number of tasks that [TasksLikeThese] needs.
const MinTasks = 5

// Cell is what an agent did at a task. N is how many attempts count, at least 1, and Passed how many of them passed.
type Cell struct{ Passed, N int }

func (c Cell) rate() float64 { return float64(c.Passed) / float64(c.N) }

// Rate is the mean of the rates of cells; null if there are none.
func Rate(cells []Cell) *float64 {
	if len(cells) == 0 {
		return nil
	}
	var rates []float64
	for _, c := range cells {
		rates = append(rates, c.rate())
	}
	return new(average(rates))
}

// average is the arithmetic mean of at least one value.
func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// TheseTasksAgain is the interval of the rate that an agent has at exactly these tasks; null without cells.
func TheseTasksAgain(cells []Cell) *Interval {
	if len(cells) == 0 {
		return nil
	}
	tasks := float64(len(cells))
	variance, unit := 0.0, 0.0   // variance of the sum of rates; what one attempt adds to the mean, at most
	var once, passedOnce float64 // tasks with one attempt
	for _, c := range cells {
		passed, n := float64(c.Passed), float64(c.N)
		unit = max(unit, 1/n/tasks)
		if c.N == 1 {
			once, passedOnce = once+1, passedOnce+passed
			continue
		}
		variance += passed * (n - passed) / (n * n * (n - 1))
	}
	if once > 0 {
		variance += passedOnce * (once - passedOnce) / once
	}
	scale := 1 + 2*unit
	mid, half := (*Rate(cells)+unit)/scale, z975*math.Sqrt(variance/tasks/tasks+2*unit*unit)/scale
	return &Interval{max(0, mid-half), min(1, mid+half)}
}

// TasksLikeThese is the interval of the rate that an agent has at tasks of which these are a random sample; null with
// fewer than [MinTasks] cells.
func TasksLikeThese(cells []Cell) *Interval {
	if len(cells) < MinTasks {
		return nil
	}
	rates := []float64{0, 1}
	for _, c := range cells {
		rates = append(rates, c.rate())
	}
	in := ofMean(rates, len(cells)-1)
	return &Interval{max(0, in.Low), min(1, in.High)}
}

// ofMean is Student's interval of the mean of at least two values, with df degrees of freedom.
func ofMean(values []float64, df int) Interval {
	n, mean, squares := float64(len(values)), average(values), 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	half := student(df) * math.Sqrt(squares/(n-1)/n)
	return Interval{mean - half, mean + half}
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
