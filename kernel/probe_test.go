//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"testing"
)

func TestProbe(t *testing.T) {
	hooks, err := Probe()
	if errors.Is(err, ErrNotSupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks {
		if !h.Attached && (h.Required || os.Getenv("KERNEL_TEST_INNER") == "") {
			t.Errorf("%s: %s", h.Name, h.Detail)
		}
	}
}
