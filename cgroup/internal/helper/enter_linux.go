package helper

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
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

// entered tells whether this program would play the roles when started for them.
var entered bool

// Enter plays the role that this process was started for, and then exits. It
// returns where there is none.
func Enter() {
	entered = true
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

// IsJoiner tells whether argv is a joiner's.
func IsJoiner(argv []string) bool {
	return len(argv) > 1 && argv[0] == name && argv[1] == joinArg
}

// ignoreSignals keeps a helper process alive through what is meant for others.
func ignoreSignals() {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGUSR1, unix.SIGUSR2)
}
