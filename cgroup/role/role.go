// Package role lists the helper processes that this program starts from its own binary: what each is for, how
// it is started, and how it is recognised.
//
// The arguments of a helper are Name, its Role, and what the role needs. A package named reexec, which only a main
// package imports, has the process play its role in an init function: see [Play].
package role

import "os"

// Name is a helper's argv[0].
const Name = "assay-run"

// Role is what a helper is for: its first argument.
type Role string

// The roles. A command that a helper starts replaces it, so its arguments follow those of the role.
const (
	// Join moves itself into cgroups and becomes the command.
	Join Role = "__cgroup-join"
	// Job leads a terminal session of the command's own.
	Job Role = "__job"
	// Guard ends a session if its runner is killed.
	Guard Role = "__guard"
	// GuardElsewhere starts a guard that is not a child of the runner, and exits.
	GuardElsewhere Role = "__guard-elsewhere"
	// Steps executes a list of package steps. The entry point in assembly knows it too.
	Steps Role = "__steps"
	// Observer keeps the host's observer, or frees what a killed run left of it.
	Observer Role = "__observer"
	// Notify loads the filter of the observer without privilege and becomes the command.
	Notify Role = "__notify"
	// Containers ends the containers of a killed run.
	Containers Role = "__containers"
)

// All lists the roles.
func All() []Role {
	return []Role{Join, Job, Guard, GuardElsewhere, Steps, Observer, Notify, Containers}
}

// Args are the arguments of a helper, for /proc/self/exe.
func (r Role) Args(more ...string) []string { return append([]string{Name, string(r)}, more...) }

// Is reports whether argv is that of a helper with this role. It says nothing about whose program it is: compare
// the executable.
func (r Role) Is(argv []string) bool { return len(argv) > 1 && argv[0] == Name && argv[1] == string(r) }

var played = map[Role]bool{}

// Available reports whether this program plays the role when it is started for it. If not, it must not be started.
func (r Role) Available() bool { return played[r] }

// Play plays the role that this process was started for, if that is one of roles, and exits with the status that
// it returns. Otherwise it returns, and the roles are available. It is called by init functions alone.
func Play(roles map[Role]func(args []string) (status int)) {
	for r := range roles {
		played[r] = true
	}
	if len(os.Args) < 2 || os.Args[0] != Name {
		return
	}
	if play := roles[Role(os.Args[1])]; play != nil {
		os.Exit(play(os.Args))
	}
}
