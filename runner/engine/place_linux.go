package engine

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/tree"
)

// into is the place of the containers of this process's user. For a cgroup in a slice Podman has to
// ask systemd; one at a path it has to make itself. The systemd of an ordinary user can put nothing
// into the run. Where that user may make no cgroup, Podman makes none.
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
