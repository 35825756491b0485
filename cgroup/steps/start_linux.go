//go:build amd64 || arm64

package steps

import "golang.org/x/sys/unix"

// The entry point sets these, a bit for each signal: the lowest is signal 1.
var ignoredAtStart, blockedAtStart uint64

// AtStart returns which signals were ignored and which were blocked when this process was executed, a bit for each: the
// lowest is signal 1. It is only known of a program that was linked with [Entry].
func AtStart() (ignored, blocked uint64, known bool) { return ignoredAtStart, blockedAtStart, Linked() }

// Restore makes this process ignore, and this thread block, what AtStart returns. It is called right before the thread
// executes another program, which then has them as if there were no Go runtime here.
func Restore() error {
	ignored, blocked, known := AtStart()
	if !known {
		return nil
	}
	for sig := range 64 {
		if ignored>>sig&1 != 0 {
			action(sig+1, &[4]uint64{ignore}, nil)
		}
	}
	var set unix.Sigset_t
	set.Val[0] = blocked
	return unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil)
}
