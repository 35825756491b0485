package runner

import "fmt"

// ownDescriptors is how many descriptors a run needs without the kernel layer: spool, streams, cgroups, guard,
// sockets.
const ownDescriptors = 64

// DescriptorError means that this process may not open as many descriptors as are needed.
type DescriptorError struct {
	Need, Open, Limit int
	Kernel            bool // the need includes a kernel layer's
}

func (e *DescriptorError) Error() string {
	return fmt.Sprintf("%d more file descriptors are needed, and this process may have %d in all, of which %d are open",
		e.Need, e.Limit, e.Open)
}

// Remedy says what to do.
func (e *DescriptorError) Remedy() string {
	const raise = "raise the hard limit: ulimit -Hn 1024"
	if e.Kernel && e.Limit-e.Open >= ownDescriptors {
		return raise + fmt.Sprintf("; or use --kernel off, which needs %d", ownDescriptors)
	}
	return raise
}
