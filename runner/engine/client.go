package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/cgroup/role"
)

// EnvCgroupParent is the variable that names, in the environment of a run's command, the cgroup parent for containers
// of the run.
const EnvCgroupParent = "ASSAY_RUN_CGROUP_PARENT"

// findPodman finds podman in a PATH, as execvp does. It returns "" if there is none. It skips links to this program.
func findPodman(path string) string {
	own, _ := os.Stat("/proc/self/exe")
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, Podman)
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 &&
			!os.SameFile(info, own) {
			return at
		}
	}
	return ""
}

// StandIn makes a link to this program in dir if podman is in the PATH, and reports whether it did. The link runs the
// real client, and adds the run's cgroup parent for new containers. Docker's clients need no such link: see Relay.
func StandIn(dir, path string) (bool, error) {
	if findPodman(path) == "" {
		return false, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return false, err
	}
	if !role.Containers.Available() {
		return false, errors.New("this program cannot replace a container engine's client")
	}
	return true, os.Symlink(exe, filepath.Join(dir, Podman))
}

// beClient runs the real client if this process was started through the link.
func beClient() {
	parent := os.Getenv(EnvCgroupParent)
	if parent == "" || filepath.Base(os.Args[0]) != Podman {
		return
	}
	fail := func(code int, err error) {
		fmt.Fprintln(os.Stderr, "assay-run: error:", err)
		os.Exit(code)
	}
	at := findPodman(os.Getenv("PATH"))
	if at == "" {
		fail(127, errors.New("podman is not in PATH"))
	}
	args, composes := withParent(os.Args[1:], into(parent))
	if composes && !composedInto(args, os.Getenv("COMPOSE_FILE")) {
		fail(
			125,
			fmt.Errorf(
				"podman compose has Podman's service start the containers, outside of the run: use podman-compose, "+
					"or write cgroup_parent: ${%s} for each service in the compose file",
				EnvCgroupParent,
			),
		)
	}
	env := os.Environ()
	if rootless() { // otherwise the user's systemd would move podman itself out of the run
		env = append(env, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	}
	err := syscall.Exec(at, append([]string{os.Args[0]}, args...), env)
	code := 126
	if errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	fail(code, fmt.Errorf("execute %s: %w", at, err))
}

// valued are options before the command whose value is the next argument.
var valued = []string{
	"--cgroup-manager", "--config", "--conmon", "-c", "--connection", "--events-backend", "--hooks-dir", "--identity",
	"--imagestore",
	"--log-level", "--module", "--network-cmd-path", "--network-config-dir", "--out", "--root", "--runroot",
	"--runtime", "--runtime-flag",
	"--ssh", "--storage-driver", "--storage-opt", "--tmpdir", "--url", "--volumepath",
}

// place says how a client puts a container into the run.
type place struct {
	parent string // cgroup parent; empty: the container stays in the client's cgroup
	// manager makes the cgroups; empty means the client's default. A Podman service decides that itself, and its
	// client does not know the option.
	manager string
}

// rootless reports whether podman runs for an ordinary user here. It then enters its own user namespace, in which it
// is root, and executes itself again by PATH.
func rootless() bool {
	return os.Geteuid() != 0 || os.Getenv("_CONTAINERS_ROOTLESS_UID") != ""
}

// withParent adds the place to a client's arguments if they make a container. It precedes the caller's own options,
// because the client uses the last of two. composes means that a compose file describes the containers.
func withParent(args []string, to place) (_ []string, composes bool) {
	at := command(args)
	if at < len(args) && args[at] == "container" {
		at++
	}
	if at >= len(args) {
		return args, false
	}
	switch args[at] {
	case "run", "create":
		before, after := []string{}, []string{}
		if to.manager != "" && !remote(args[:at]) {
			before = append(before, "--cgroup-manager="+to.manager)
		}
		if to.parent != "" {
			after = append(after, "--cgroup-parent="+to.parent)
		}
		return slices.Concat(before, args[:at+1], after, args[at+1:]), false
	case "compose":
		return args, makes(args[at+1:])
	}
	return args, false
}

// remote reports whether podman with these options and this environment is the client of a service.
func remote(options []string) bool {
	for _, a := range options {
		if name, _, _ := strings.Cut(a, "="); slices.Contains(remotes, name) {
			return true
		}
	}
	for _, key := range []string{"CONTAINER_HOST", "CONTAINER_CONNECTION"} {
		if _, set := os.LookupEnv(key); set { // even if empty
			return true
		}
	}
	return false
}

// remotes are options before the command that make podman the client of a service.
var remotes = []string{"-r", "--remote", "--url", "-c", "--connection", "--context", "-H", "--host"}

// command is the index of the command in a client's arguments.
func command(args []string) int {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			return i
		}
		if slices.Contains(valued, args[i]) {
			i++
		}
	}
	return len(args)
}

// makes reports whether a compose command makes containers. It can mistake an option's value for such a command; then
// the file also has to name the cgroup.
func makes(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains([]string{"up", "run", "create", "scale", "watch"}, a)
	})
}

// composedInto reports whether one of the compose files names the cgroup of the run.
func composedInto(args []string, list string) bool {
	files := filepath.SplitList(list)
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, "--file="); ok {
			files = append(files, value)
		} else if (a == "-f" || a == "--file") && i+1 < len(args) {
			files = append(files, args[i+1])
		}
	}
	if len(files) == 0 {
		for _, name := range []string{"compose", "docker-compose", "container-compose"} {
			files = append(files, name+".yaml", name+".yml")
		}
	}
	return slices.ContainsFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(b), EnvCgroupParent)
	})
}
