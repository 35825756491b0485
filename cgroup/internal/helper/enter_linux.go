package helper

import (
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// Enter runs the role that this process was started for, and then exits. It returns if there is none.
func Enter() {
	steps.Enter()
	role.Play(map[role.Role]func([]string) int{
		role.Guard: guardMain, role.GuardElsewhere: elsewhereMain, role.Join: joinMain, role.Job: leaderMain,
	})
}

// available is nil, or ErrNone.
func available() error {
	if !role.Guard.Available() {
		return ErrNone
	}
	return nil
}

// ignored has a bit for each signal that is meant for others.
const ignored = 1<<unix.SIGINT | 1<<unix.SIGTERM | 1<<unix.SIGHUP | 1<<unix.SIGQUIT | 1<<unix.SIGPIPE |
	1<<unix.SIGTSTP | 1<<unix.SIGTTIN | 1<<unix.SIGTTOU | 1<<unix.SIGUSR1 | 1<<unix.SIGUSR2

// ignoreSignals makes a helper process ignore these signals.
func ignoreSignals() {
	for sig := unix.SIGHUP; sig <= unix.SIGTTOU; sig++ {
		if ignored>>sig&1 != 0 {
			signal.Ignore(sig)
		}
	}
}
