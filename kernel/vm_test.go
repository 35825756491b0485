//go:build linux && amd64

package kernel

import (
	"os"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/vmtest"
)

// bootsKernels skips a test in the machines that it boots, and in a short run.
func bootsKernels(t *testing.T) {
	t.Helper()
	if os.Getenv("KERNEL_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	if testing.Short() {
		t.Skip("boots kernels under emulation")
	}
}

// TestOtherKernels runs this suite on kernels of Debian: the verifiers, the
// kernel's types and the instruction set differ from this host's. Left out are
// the tests of coreutils, of file systems and calls that the machine lacks, and
// of io_uring, whose tracepoint came with Linux 6.4.
func TestOtherKernels(t *testing.T) {
	bootsKernels(t)
	for _, c := range []struct{ series, arch, skip string }{
		// Not on 6.1: the io_uring program needs more stack than its verifier gives,
		// and has no tracepoint there to attach to.
		{"6.1", "amd64", "TestShell|TestVariants|TestIOUring|TestLoadsWithNeededTypes"},
		{"6.12", "amd64", "TestShell|TestVariants|TestIOUring"},
		// The first three are long there, the others make calls that arm64 lacks.
		{"6.12", "arm64", "TestShell|TestIOUring|TestFlood|TestThreadsThatExitTogether|TestManySessions|TestNamesOutliveTheirMemory|TestNamesAreResolved"},
	} {
		t.Run("Linux "+c.series+" "+c.arch, func(t *testing.T) {
			vmtest.Suite(t, vmtest.Machine{Arch: c.arch, MemoryMiB: 1024, Script: `
export KERNEL_TEST_INNER=1
mount -t cgroup2 none /sys/fs/cgroup || exit 1
cd /tmp && exec /suite -test.short -test.v -test.skip "` + c.skip + `"
`}, c.series, 600*time.Second, 15)
		})
	}
}
