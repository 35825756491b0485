package engine

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// into is the place of the containers of this process's user. Podman asks systemd for what
// is to be in a slice. The systemd of an ordinary user cannot put anything into the run, so
// Podman then has to make cgroups itself. Where it may not, it makes none.
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
	return place{parent, ""}
}
