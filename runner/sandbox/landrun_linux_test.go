package sandbox

import "testing"

// TestLandrunAsks compares the version that a ruleset asks for with the first one that has all of its rights.
func TestLandrunAsks(t *testing.T) {
	for i := range 8 {
		l := Landrun{UnrestrictedFilesystem: i&1 != 0, UnrestrictedNetwork: i&2 != 0, UnrestrictedScoped: i&4 != 0}
		rights := func(abi int) (all [3]uint64) {
			files, network, scoped := handled(abi)
			for i, unrestricted := range []bool{l.UnrestrictedFilesystem, l.UnrestrictedNetwork, l.UnrestrictedScoped} {
				if !unrestricted {
					all[i] = []uint64{files, network, scoped}[i]
				}
			}
			return all
		}
		first := 1
		for rights(first) != rights(bestABI) {
			first++
		}
		if got := l.asks(); got != first {
			t.Errorf("%+v asks for ABI %d, but ABI %d has all rights", l, got, first)
		}
	}
}
