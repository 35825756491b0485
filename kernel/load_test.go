//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
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
