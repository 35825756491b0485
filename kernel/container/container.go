// Package container tells from the name of a cgroup which container its processes
// are in. An engine puts each container into a cgroup whose name holds the
// container's id: with the cgroupfs driver a directory, with the systemd driver a
// scope. The name is what an engine chose, or what somebody with the right to make
// cgroups wrote: it identifies a container to the engine and proves nothing.
package container

import "strings"

// Engines that name a cgroup in a form of their own.
const (
	Docker     = "docker"
	Podman     = "podman"
	CRIO       = "cri-o"
	Containerd = "containerd" // its Kubernetes plugin, or nerdctl
)

// Container is what the name of a cgroup tells.
type Container struct {
	// ID is the id that the engine gave the container: 64 lower-case hex digits.
	ID string
	// Engine is who uses this form of name; empty where several do: Docker and
	// containerd name a directory by the id alone.
	Engine string
}

// Short is the form of the id that engines print.
func (c Container) Short() string { return c.ID[:min(12, len(c.ID))] }

// forms are the prefixes before an id. With the systemd driver, ".scope" follows.
var forms = []struct {
	prefix, engine string
	helper         bool // what supervises the container is in there, and not the container
}{
	{"libpod-conmon-", Podman, true},
	{"libpod-", Podman, false},
	{"docker-", Docker, false},
	{"cri-containerd-", Containerd, false},
	{"nerdctl-", Containerd, false},
	{"crio-conmon-", CRIO, true},
	{"crio-", CRIO, false},
	{"cri-containerd:", Containerd, false}, // "SLICE:cri-containerd:ID", systemd's form given to cgroupfs
	{"", "", false},
}

// Of tells the container of the processes in a cgroup from its path, which should
// begin below what the caller itself is in: a container around the caller is of no
// interest. Of containers in each other it is the innermost, and cgroups that a
// container made for itself belong to it. ok is false where no part of the path
// names a container.
func Of(path string) (c Container, ok bool) {
	parent := ""
	for name := range strings.SplitSeq(path, "/") {
		if found, helper := one(name, parent); found.ID != "" && !helper {
			c, ok = found, true
		}
		parent = name
	}
	return c, ok
}

// Supervisor tells the container that the processes in a cgroup supervise: Podman's
// and CRI-O's conmon have cgroups of their own.
func Supervisor(path string) (c Container, ok bool) {
	c, helper := one(path[strings.LastIndexByte(path, '/')+1:], "")
	return c, helper
}

// one tells what the name of one directory means below the name before it.
func one(name, parent string) (c Container, helper bool) {
	if i := strings.LastIndex(name, ":cri-containerd:"); i >= 0 {
		name = name[i+1:]
	}
	scope, isScope := strings.CutSuffix(name, ".scope")
	for _, f := range forms {
		id, ok := strings.CutPrefix(scope, f.prefix)
		if !ok || !isID(id) {
			continue
		}
		if f.prefix == "" && (isScope || parent == "libpod_parent") {
			return Container{}, false // Podman names a pod so, which holds containers
		}
		return Container{ID: id, Engine: f.engine}, f.helper
	}
	return Container{}, false
}

// isID reports whether s is what every engine makes: 256 random bits.
func isID(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
