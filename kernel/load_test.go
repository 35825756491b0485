//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/assay-run/assay-run/bpf"
)

// TestVerifier says what the kernel thinks of each program.
func TestVerifier(t *testing.T) {
	l, err := load(Config{CgroupPath: newCgroup(t)})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer l.close()
	for name, err := range l.failed {
		if name == "submitted" && os.Getenv("KERNEL_TEST_INNER") != "" {
			continue // the tracepoint came with Linux 6.4
		}
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) && len(ve.Log) > 80 {
			ve.Log = ve.Log[len(ve.Log)-80:]
			t.Errorf("%s: %s", name, strings.Join(ve.Log, "\n"))
			continue
		}
		t.Errorf("%s: %+v", name, err)
	}
	for name, p := range l.progs {
		if info, err := p.Info(); err == nil {
			n, _ := info.VerifiedInstructions()
			t.Logf("%s: %d instructions verified", name, n)
		}
	}
}

func TestHalvesAreAllOfThePrograms(t *testing.T) {
	spec, err := bpf.LoadAssay()
	if err != nil {
		t.Fatal(err)
	}
	parts := halves(spec.Programs)
	var sizes [2]int
	for i, part := range parts {
		for name, p := range part {
			sizes[i] += len(p.Instructions)
			if parts[1-i][name] != nil {
				t.Errorf("%s is in both", name)
			}
		}
	}
	if n := len(parts[0]) + len(parts[1]); n != len(spec.Programs) {
		t.Errorf("%d of %d programs", n, len(spec.Programs))
	}
	if sizes[0] > 2*sizes[1] || sizes[1] > 2*sizes[0] {
		t.Errorf("%d and %d instructions", sizes[0], sizes[1])
	}
}
