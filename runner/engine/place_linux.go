package engine

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// into returns the place for containers of this process's user. If the parent is a slice, Podman must ask systemd;
// otherwise it must make the cgroup itself. The systemd of an ordinary user cannot put anything into the run. If that
// user may not make cgroups, Podman makes none.
func into(parent string) place {
	if rootless() {
		dir, err := tree.Locate(parent)
		if err != nil || unix.Access(dir, unix.W_OK) != nil {
			parent = ""
		}
		return place{parent, Cgroupfs}
	}
	if strings.HasSuffix(parent, ".slice") {
		return place{parent, Systemd}
	}
	return place{parent, Cgroupfs}
}
