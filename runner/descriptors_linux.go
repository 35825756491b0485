package runner

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// CheckDescriptors returns a [DescriptorError] if this process cannot open as many descriptors as a run needs, with
// or without a kernel layer. Go has raised this process's soft limit to the hard limit; the command gets the original
// soft limit.
func CheckDescriptors(withKernel bool) error {
	e := &DescriptorError{Need: ownDescriptors, Kernel: withKernel}
	if withKernel {
		e.Need += kernel.Descriptors
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= 1<<20 {
		return nil
	}
	e.Limit = int(limit.Cur)
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		e.Open = len(open) - 1 // not the one of the directory itself
	}
	if e.Open+e.Need > e.Limit {
		return e
	}
	return nil
}
