package schema

import "testing"

// A home says no more of what was written than somebody has seen.
func TestHomeText(t *testing.T) {
	none, one := []HomeWritten{}, make([]HomeWritten, 1)
	for want, h := range map[string]Home{
		"real: x": {State: HomeReal, Reason: "x"},
		"private; what was written there is not known":             {State: HomePrivate},
		"private; 0 paths were written, and removed after the run": {State: HomePrivate, Written: none},
		"private; 1 path was written, and kept in /l":              {State: HomePrivate, Layer: "/l", Written: one},
		"private; 3 paths were written, and removed after the run": {State: HomePrivate, Written: one, Beyond: 2},
	} {
		if got := h.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
