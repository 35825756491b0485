package helper

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// The name and first arguments of what the own binary is started for.
const (
	name      = "assay-run"
	joinArg   = "__cgroup-join"
	guardArg  = "__guard"
	leaderArg = "__job"
	// elsewhereArg is for what starts a guard and goes.
	elsewhereArg = "__guard-elsewhere"
)

// entered reports whether this program would play the roles when started for them.
var entered bool

// Enter plays the role that this process was started for, and then exits. It
// returns where there is none.
func Enter() {
	entered = true
	steps.Enter()
	if len(os.Args) < 2 || os.Args[0] != name {
		return
	}
	switch os.Args[1] {
	case guardArg:
		os.Exit(guardMain(os.Args))
	case elsewhereArg:
		os.Exit(elsewhereMain(os.Args))
	case joinArg:
		os.Exit(joinMain(os.Args))
	case leaderArg:
		os.Exit(leaderMain(os.Args))
	}
}

// available is nil, or ErrNone.
func available() error {
	if !entered {
		return ErrNone
	}
	return nil
}

// IsJoiner reports whether argv is a joiner's.
func IsJoiner(argv []string) bool {
	return len(argv) > 1 && argv[0] == name && argv[1] == joinArg
}

// ignored has a bit for each signal that is meant for others.
const ignored = 1<<unix.SIGINT | 1<<unix.SIGTERM | 1<<unix.SIGHUP | 1<<unix.SIGQUIT | 1<<unix.SIGPIPE |
	1<<unix.SIGTSTP | 1<<unix.SIGTTIN | 1<<unix.SIGTTOU | 1<<unix.SIGUSR1 | 1<<unix.SIGUSR2

// ignoreSignals keeps a helper process alive through these.
func ignoreSignals() {
	for sig := unix.SIGHUP; sig <= unix.SIGTTOU; sig++ {
		if ignored>>sig&1 != 0 {
			signal.Ignore(sig)
		}
	}
}
