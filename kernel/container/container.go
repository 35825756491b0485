// Package container finds out from the name of a cgroup which container its processes are in. An engine
// puts each container into a cgroup whose name contains the container's id: a directory with the cgroupfs
// driver, a scope with the systemd driver. Whoever may make cgroups can choose such a name, so it proves
// nothing.
package container

import "strings"

// Engines that name a cgroup in a form of their own.
const (
	Docker     = "docker"
	Podman     = "podman"
	CRIO       = "cri-o"
	Containerd = "containerd" // its Kubernetes plugin, or nerdctl
)

// Container is what the name of a cgroup says.
type Container struct {
	// ID is the id that the engine gave the container: 64 lower-case hex digits.
	ID string
	// Engine is the only engine that uses this form of name. It is empty for a directory that is named by
	// the id alone, as Docker and containerd do.
	Engine string
}

// forms are the prefixes of the id. The systemd driver appends ".scope". The cgroups of conmon, which Podman and
// CRI-O start for each container, are not here: conmon is not in the container.
var forms = []struct{ prefix, engine string }{
	{"libpod-", Podman},
	{"docker-", Docker},
	{"cri-containerd-", Containerd},
	{"nerdctl-", Containerd},
	{"crio-", CRIO},
	{"cri-containerd:", Containerd}, // "SLICE:cri-containerd:ID": systemd's form of the name, given to cgroupfs
	{"", ""},
}

// Of returns the innermost container in the path of a cgroup. The path should begin below the caller's own
// cgroup, so that a container around the caller does not count. Cgroups that a container made for itself
// belong to it. ok is false if no part of the path names a container.
func Of(path string) (c Container, ok bool) {
	parent := ""
	for name := range strings.SplitSeq(path, "/") {
		if found, is := named(name, parent); is {
			c, ok = found, true
		}
		parent = name
	}
	return c, ok
}

// named returns the container that a directory's name says; parent is the name of the directory above.
func named(name, parent string) (c Container, ok bool) {
	if i := strings.LastIndex(name, ":cri-containerd:"); i >= 0 {
		name = name[i+1:]
	}
	scope, isScope := strings.CutSuffix(name, ".scope")
	for _, f := range forms {
		id, ok := strings.CutPrefix(scope, f.prefix)
		if !ok || !isID(id) {
			continue
		}
		isPod := f.prefix == "" && (isScope || parent == "libpod_parent") // Podman's, which holds containers
		return Container{ID: id, Engine: f.engine}, !isPod
	}
	return Container{}, false
}

// isID reports whether s is 64 lower-case hex digits, the form of id that every engine makes.
func isID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
