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
)

// EnvCgroupParent names, in the environment of a run's command, the cgroup to put
// containers into so that they belong to the run.
const EnvCgroupParent = "ASSAY_RUN_CGROUP_PARENT"

// Client finds podman in a PATH, as execvp does. It returns "" if there is none. It skips
// links to this program.
func Client(path string) string {
	own, _ := os.Stat("/proc/self/exe")
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, Podman)
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !os.SameFile(info, own) {
			return at
		}
	}
	return ""
}

// StandIn makes a link to this program in a directory if Podman is in the PATH, and
// reports whether it did. The link runs the client, with the run's cgroup parent for the
// containers that it makes. Docker's clients need no such link: see Relay.
func StandIn(dir, path string) (bool, error) {
	if Client(path) == "" {
		return false, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return false, err
	}
	if !entered {
		return false, errors.New("this program cannot replace a container engine's client")
	}
	return true, os.Symlink(exe, filepath.Join(dir, Podman))
}

// beClient runs the client if this process was started under the client's name.
func beClient() {
	parent := os.Getenv(EnvCgroupParent)
	if parent == "" || filepath.Base(os.Args[0]) != Podman {
		return
	}
	fail := func(code int, err error) {
		fmt.Fprintln(os.Stderr, "assay-run: error:", err)
		os.Exit(code)
	}
	at := Client(os.Getenv("PATH"))
	if at == "" {
		fail(127, errors.New("podman is not in PATH"))
	}
	args, composes := withParent(os.Args[1:], parent)
	if composes && !composedInto(args, os.Getenv("COMPOSE_FILE")) {
		fail(125, fmt.Errorf("podman compose has Podman's service start the containers, outside of the run: use podman-compose, or write cgroup_parent: ${%s} for each service in the compose file", EnvCgroupParent))
	}
	err := syscall.Exec(at, append([]string{os.Args[0]}, args...), os.Environ())
	code := 126
	if errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	fail(code, fmt.Errorf("execute %s: %w", at, err))
}

// valued are the options before a command whose value is the next argument.
var valued = []string{
	"--cgroup-manager", "--config", "--conmon", "-c", "--connection", "--events-backend", "--hooks-dir", "--identity", "--imagestore",
	"--log-level", "--module", "--network-cmd-path", "--network-config-dir", "--out", "--root", "--runroot", "--runtime", "--runtime-flag",
	"--ssh", "--storage-driver", "--storage-opt", "--tmpdir", "--url", "--volumepath",
}

// withParent adds the cgroup parent to the arguments of a client that makes a
// container, and who makes cgroups there if that is a slice. Both precede the caller's own
// options, because the client uses the last of two. composes says that a compose file
// describes the containers.
func withParent(args []string, parent string) (_ []string, composes bool) {
	at := command(args)
	if at < len(args) && args[at] == "container" {
		at++
	}
	if at >= len(args) {
		return args, false
	}
	switch args[at] {
	case "run", "create":
		return slices.Concat(manager(args[:at], parent), args[:at+1], []string{"--cgroup-parent=" + parent}, args[at+1:]), false
	case "compose":
		return args, makes(args[at+1:])
	}
	return args, false
}

// manager is the option that has Podman ask systemd for cgroups, as a slice needs. A
// service of Podman's decides that itself, and its client does not know the option.
func manager(global []string, parent string) []string {
	if !strings.HasSuffix(parent, ".slice") {
		return nil
	}
	for _, a := range global {
		if name, _, _ := strings.Cut(a, "="); slices.Contains(remotes, name) {
			return nil
		}
	}
	for _, key := range []string{"CONTAINER_HOST", "CONTAINER_CONNECTION"} {
		if _, set := os.LookupEnv(key); set { // even to nothing
			return nil
		}
	}
	return []string{"--cgroup-manager=" + Systemd}
}

// remotes are the options before a command that make podman the client of a service.
var remotes = []string{"-r", "--remote", "--url", "-c", "--connection", "--context", "-H", "--host"}

// command is the index of the command among the arguments of a client.
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

// makes reports whether a compose command makes containers. It can mistake an option's
// value for such a command. Then, too, the file has to name the cgroup.
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
