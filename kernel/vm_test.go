//go:build linux && amd64

package kernel

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/cgroup/vmtest"
)

// TestOtherKernels runs this suite on kernels of Debian: the verifiers, the
// kernel's types and the instruction set differ from this host's. Left out are the tests of coreutils,
// of file systems and calls that the machine lacks, and of io_uring, whose
// tracepoint came with Linux 6.4.
func TestOtherKernels(t *testing.T) {
	if os.Getenv("KERNEL_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	if testing.Short() {
		t.Skip("boots two kernels under emulation")
	}
	for _, c := range []struct{ series, arch, skip string }{
		{"6.1", "amd64", "TestShell|TestVariants|TestIOUring"},
		{"6.12", "amd64", "TestShell|TestVariants|TestIOUring"},
		{"6.12", "arm64", "TestShell|TestIOUring|TestFlood|TestThreadsThatExitTogether"}, // the last two are long there
	} {
		t.Run("Linux "+c.series+" "+c.arch, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "suite")
			build := exec.Command("go", "test", "-c", "-o", binary, ".")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+c.arch)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("go test -c: %v\n%s", err, out)
			}
			kernel, err := vmtest.KernelFor(c.series, c.arch)
			if errors.Is(err, vmtest.ErrMissing) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
			defer cancel()
			m := vmtest.Machine{Arch: c.arch, Kernel: kernel, MemoryMiB: 1024, Files: map[string]string{"/suite": binary}, Script: `
export PATH=/bin KERNEL_TEST_INNER=1 TMPDIR=/tmp
mount -t cgroup2 none /sys/fs/cgroup || exit 1
ip link set lo up
cd /tmp && exec /suite -test.short -test.v -test.skip "` + c.skip + `"
`}
			out, err := m.Run(ctx)
			if errors.Is(err, vmtest.ErrMissing) {
				t.Skip(err)
			}
			passed := strings.Count(out, "\n--- PASS: ")
			t.Logf("%s: %d passed, %d skipped", filepath.Base(kernel), passed, strings.Count(out, "\n--- SKIP: "))
			if err != nil || passed < 15 {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}
