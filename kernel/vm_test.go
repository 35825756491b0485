//go:build linux && amd64

package kernel

import (
	"os"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/vmtest"
)

// bootsKernels skips a test in the machines that it boots.
func bootsKernels(t *testing.T) {
	t.Helper()
	if os.Getenv("KERNEL_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
}

// sets are the tests of which set of programs a run joins, and of who removes it. Files decide
// that, not the kernel, and each loads the programs several times, which takes seconds in a
// machine: the night runs them there.
const sets = "TestAlone|TestBrokenSet|TestSetOfAnotherBuild|TestASetOfAnotherBuild|TestBuildsLive|TestKilledRuns|" +
	"TestForgedSet|TestTampering|TestARemovedCgroup|TestLocksDie|TestSlotOf|TestFirstSlot|TestForgottenPreload|" +
	"TestSweepingWaits|TestWhatAZombie|TestWhoSweeps"

// TestOtherKernels runs this suite on kernels of Debian: the verifiers, the
// kernel's types and the instruction set differ from this host's. Left out are
// the tests of coreutils, and of file systems and calls that the machine lacks.
func TestOtherKernels(t *testing.T) {
	bootsKernels(t)
	for _, c := range []struct {
		series, arch string
		cpus         int
		skip         string
	}{
		// With one CPU hardly a race happens. The tracepoint of io_uring came with Linux 6.4.
		{"6.1", "amd64", 2, "TestShell|TestVariants|TestIOUring"},
		{"6.12", "amd64", 2, "TestShell|TestVariants"},
		// The last three are long there.
		{"6.12", "arm64", 1, "TestShell|TestFlood|TestThreadsThatExitTogether|TestManySessions"},
	} {
		t.Run("Linux "+c.series+" "+c.arch, func(t *testing.T) {
			skip := c.skip
			if c.series != "6.1" {
				layertest.Night(t)
			} else if !layertest.IsNight() {
				skip += "|" + sets
			}
			vmtest.Suite(t, vmtest.Machine{Arch: c.arch, MemoryMiB: 1024, CPUs: c.cpus, Script: `
export KERNEL_TEST_INNER=1
mount -t cgroup2 none /sys/fs/cgroup || exit 1
cd /tmp && exec /suite -test.short -test.v -test.skip "` + skip + `"
`}, c.series, 900*time.Second, 15)
		})
	}
}
