package figures

import (
	"math"
	"testing"
)

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
