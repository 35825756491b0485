//go:build linux && (amd64 || arm64)

package kernel

import "testing"

func TestProbe(t *testing.T) {
	hooks, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks {
		if !h.Attached {
			t.Errorf("%s: %s", h.Name, h.Detail)
		}
	}
}
