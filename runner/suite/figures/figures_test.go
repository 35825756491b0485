package figures

import (
	"math"
	"testing"
)

// These are the intervals of Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
func TestWilsonAsPublished(t *testing.T) {
	for _, c := range []struct {
		passed, n int
		low, high float64
	}{
		{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718},
		{20, 20, 0.8389, 1}, {0, 0, 0, 1},
	} {
		got := Wilson(c.passed, c.n)
		if math.Abs(got.Low-c.low) > 5e-5 || math.Abs(got.High-c.high) > 5e-5 {
			t.Errorf("Wilson(%d, %d) = %.4f, want %.4f to %.4f", c.passed, c.n, got, c.low, c.high)
		}
	}
}

// Each estimate must equal a count over all samples of k out of n.
func TestEstimatesCountAllSamples(t *testing.T) {
	for n := range 9 {
		for passed := range n + 1 {
			for k := 1; k <= n; k++ {
				var some, all, samples float64
				for set := range 1 << n {
					drawn, good := 0, 0
					for i := range n {
						if set>>i&1 == 1 {
							drawn++
							if i < passed {
								good++
							}
						}
					}
					if drawn != k {
						continue
					}
					samples++
					if good > 0 {
						some++
					}
					if good == k {
						all++
					}
				}
				at, ok := PassAt(k, passed, n)
				hat, ok2 := PassHat(k, passed, n)
				if !ok || !ok2 || math.Abs(at-some/samples) > 1e-12 || math.Abs(hat-all/samples) > 1e-12 {
					t.Errorf("%d of %d, k %d: %v and %v, want %v and %v", passed, n, k, at, hat, some/samples,
						all/samples)
				}
			}
		}
	}
	if _, ok := PassAt(3, 1, 2); ok {
		t.Error("PassAt knows of 3 attempts where there were 2")
	}
}

// With as many ones as zeros, the mean is a binomial rate, whose interval for 50 of 100 is 0.40 to 0.60.
func TestMeanIntervalIsThatOfABinomial(t *testing.T) {
	values := make([]float64, 100)
	for i := range 50 {
		values[i] = 1
	}
	got := MeanInterval(values)
	if math.Abs(got.Low-0.40) > 0.011 || math.Abs(got.High-0.60) > 0.011 {
		t.Errorf("it is %v", got)
	}
	if again := MeanInterval(values); again != got {
		t.Errorf("then it is %v", again)
	}
	if got := MeanInterval([]float64{0.5}); got != (Interval{0.5, 0.5}) {
		t.Errorf("of one value it is %v", got)
	}
}
