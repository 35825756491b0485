package figures

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// A kind of tasks draws a task's true rate, where the mean over all tasks of the kind is given.
type kind struct {
	name string
	draw func(r *rand.Rand, mean float64) float64
}

var kinds = []kind{
	{"alike", func(_ *rand.Rand, mean float64) float64 { return mean }},
	{"different", func(r *rand.Rand, mean float64) float64 { return beta(r, 2*mean, 2*(1-mean)) }},
	{"very different", func(r *rand.Rand, mean float64) float64 { return beta(r, mean/2, (1-mean)/2) }},
	{"always or never", func(r *rand.Rand, mean float64) float64 {
		if r.Float64() < mean {
			return 1
		}
		return 0
	}},
	{"mostly hard, some certain", func(r *rand.Rand, mean float64) float64 { // the rest is as rare as can be
		if r.Float64() < mean/2 {
			return 1
		}
		return (mean - mean/2) / (1 - mean/2)
	}},
}

// beta draws from a beta distribution by Jöhnk's method.
func beta(r *rand.Rand, a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return a / (a + b)
	}
	for {
		u, v := math.Pow(r.Float64(), 1/a), math.Pow(r.Float64(), 1/b)
		if sum := u + v; sum > 0 && sum <= 1 {
			return u / sum
		}
	}
}

// try draws how many of n attempts pass, by inversion of the binomial distribution.
func try(r *rand.Rand, rate float64, n int) Cell {
	if rate <= 0 || rate >= 1 {
		return Cell{n * int(rate), n}
	}
	left := r.Float64()
	for k, p := 0, math.Pow(1-rate, float64(n)); k < n; k++ {
		if left -= p; left < 0 {
			return Cell{k, n}
		}
		p *= rate / (1 - rate) * float64(n-k) / float64(k+1)
	}
	return Cell{n, n}
}

// sizes are what the simulations try, and simulations how many each: all in the nightly tests, in an hour, and
// otherwise a part in seconds.
func sizes() (tasks, attempts []int, rates []float64, simulations int) {
	if !layertest.IsNight() {
		return []int{1, 2, 5, 20, 100}, []int{1, 10}, []float64{0, 0.03, 0.3, 0.5}, 3000
	}
	for rate := 0.0; rate <= 0.501; rate += 0.02 { // the methods treat passed and failed alike
		rates = append(rates, rate)
	}
	rates = append(rates, 0.005, 0.01, 0.015, 0.03, 0.05)
	return []int{1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100}, []int{1, 2, 3, 5, 7, 10}, rates, 4000
}

// TestCoverage simulates suites whose true rates are known, and counts how many intervals contain them. -v prints the
// table of docs/suites.md.
func TestCoverage(t *testing.T) {
	layertest.Host(t)
	const least = 0.93
	tasks, attempts, rates, simulations := sizes()
	r := rand.New(rand.NewPCG(1, 1))
	t.Log("tasks × attempts: lowest coverage and mean width of these tasks again, and of tasks like these")
	for _, number := range tasks {
		for _, n := range append(attempts, 0) { // 0: from 1 to 10, another number at each task
			var lowest [2]float64
			var width [2]float64
			lowest = [2]float64{1, 1}
			var at [2]string
			for _, kind := range kinds {
				for _, mean := range rates {
					var covered [2]int
					cells := make([]Cell, number)
					for range simulations {
						truth := 0.0
						for i := range cells {
							rate := kind.draw(r, mean)
							truth += rate / float64(number)
							tries := n
							if n == 0 {
								tries = 1 + r.IntN(10)
							}
							cells[i] = try(r, rate, tries)
						}
						for i, in := range []*Interval{TheseTasksAgain(cells), TasksLikeThese(cells)} {
							if in == nil {
								covered[i]++
								continue
							}
							about := []float64{truth, mean}[i]
							if in.Low <= about+1e-9 && about-1e-9 <= in.High {
								covered[i]++
							}
							width[i] += (in.High - in.Low) / float64(simulations*len(kinds)*len(rates))
						}
					}
					for i := range covered {
						if share := float64(covered[i]) / float64(simulations); share < lowest[i] {
							lowest[i], at[i] = share, fmt.Sprintf("%s, %.3g", kind.name, mean)
						}
					}
				}
			}
			like := "too few"
			if number >= MinTasks {
				like = fmt.Sprintf("%.1f %% (%s), %.1f points", 100*lowest[1], at[1], 100*width[1])
			}
			t.Logf("%d × %d: %.1f %% (%s), %.1f points; %s", number, n, 100*lowest[0], at[0], 100*width[0], like)
			for i, question := range []string{"these tasks again", "tasks like these"} {
				if lowest[i] < least {
					t.Errorf("%d tasks × %d attempts, %s: the interval covers %.1f %%, want %.0f %%", number, n,
						question, 100*lowest[i], 100*least)
				}
			}
		}
	}
}

// TestComparisonsAreHonest simulates equal agents, which must not be called worse, and agents with the difference that
// a comparison says it would find.
func TestComparisonsAreHonest(t *testing.T) {
	layertest.Host(t)
	tasks, attempts, rates, simulations := sizes()
	simulations /= 2
	r := rand.New(rand.NewPCG(2, 2))
	for _, number := range tasks {
		for _, n := range attempts {
			worst, worstAt := 0.0, ""
			covered, coveredAt := 1.0, ""
			for _, kind := range kinds {
				for _, mean := range rates {
					var worse, better, holds int
					for range simulations {
						a, b, c := make([]Cell, number), make([]Cell, number), make([]Cell, number)
						truth := 0.0
						for i := range a {
							rate, other := kind.draw(r, mean), kind.draw(r, 0.7*mean)
							a[i], b[i], c[i] = try(r, rate, n), try(r, rate, n), try(r, other, n)
							truth += (other - rate) / float64(number)
						}
						switch compareCells(a, b).Outcome {
						case Worse:
							worse++
						case Better:
							better++
						}
						in := compareCells(a, c).TheseTasksAgain
						if in[0] <= truth+1e-9 && truth-1e-9 <= in[1] {
							holds++
						}
					}
					if share := float64(max(worse, better)) / float64(simulations); share >= worst {
						worst, worstAt = share, fmt.Sprintf("%s, %.3g", kind.name, mean)
					}
					if share := float64(holds) / float64(simulations); share < covered {
						covered, coveredAt = share, fmt.Sprintf("%s, %.3g", kind.name, mean)
					}
				}
			}
			t.Logf("%d × %d: equal agents worse in at most %.1f %% (%s); covers %.1f %% (%s)", number, n, 100*worst,
				worstAt, 100*covered, coveredAt)
			if worst > 0.05 {
				t.Errorf("%d tasks × %d attempts: equal agents are worse in %.1f %%", number, n, 100*worst)
			}
			if covered < 0.93 {
				t.Errorf("%d tasks × %d attempts: the interval of the difference covers %.1f %%", number, n,
					100*covered)
			}
		}
	}
}

// TestSmallestDifferenceIsFound simulates agents with the difference that a comparison of equal agents says it would
// find in four of five.
func TestSmallestDifferenceIsFound(t *testing.T) {
	tasks, attempts, _, simulations := sizes()
	r := rand.New(rand.NewPCG(3, 3))
	for _, number := range tasks {
		for _, n := range attempts {
			for _, kind := range kinds[:3] {
				found, possible := 0, 0
				for range simulations {
					rates := make([]float64, number)
					a, b := make([]Cell, number), make([]Cell, number)
					for i := range a {
						rates[i] = kind.draw(r, 0.5)
						a[i], b[i] = try(r, rates[i], n), try(r, rates[i], n)
					}
					smallest := smallestFound(a, b)
					mean := average(rates)
					if smallest == nil || *smallest > mean {
						continue // a rate cannot be that much lower
					}
					possible++
					// The second agent loses the same share everywhere, so that the mean falls by smallest.
					for i := range b {
						a[i], b[i] = try(r, rates[i], n), try(r, rates[i]*(1-*smallest/mean), n)
					}
					if compareCells(a, b).Outcome == Worse {
						found++
					}
				}
				if possible < simulations/2 {
					continue
				}
				share := float64(found) / float64(possible)
				if share < 0.75 && number >= MinTasks { // fewer say too little about the rates to know it well
					t.Errorf("%d tasks × %d attempts, %s: the smallest difference is found in %.1f %%", number, n,
						kind.name, 100*share)
				}
				t.Logf("%d × %d, %s: found in %.1f %%", number, n, kind.name, 100*share)
			}
		}
	}
}
