package dirs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const remedyUnit = "systemd-run --scope -p Delegate=yes assay-run ... (with --user unless root)"

// unit is the directory of the systemd unit, a service or scope, that a cgroup
// belongs to; empty where there is none.
func (l *hierarchy) unit(dir string) string {
	for ; dir != l.mount && strings.HasPrefix(dir, l.mount); dir = filepath.Dir(dir) {
		if ext := filepath.Ext(dir); ext == ".service" || ext == ".scope" {
			return dir
		}
	}
	return ""
}

// delegable tells whether systemd could hand a controller to the unit that the
// runner is in: a cgroup above that is ours to change has it.
func (l *hierarchy) delegable(kind string) bool {
	dir := l.unit(l.own)
	for dir != "" && dir != l.mount {
		dir = filepath.Dir(dir)
		if slices.Contains(words(filepath.Join(dir, "cgroup.controllers")), kind) && unix.Access(dir, unix.W_OK) == nil {
			return true
		}
	}
	return false
}

// oomStops says why a session below base ends when the kernel kills one of its
// processes for want of memory: systemd counts the kills in its units, and unless
// they are delegated its default is to stop the unit (systemd.service(5),
// OOMPolicy=). It marks the delegated ones (CGROUP_DELEGATION.md), but a user's
// systemd does not: nothing is said of its units.
func (l *hierarchy) oomStops(base string) string {
	unit := l.unit(base)
	if unit == "" || strings.Contains(unit, "/user@") || os.Geteuid() != 0 {
		return ""
	}
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(unit, name, value); err == nil && string(value[:n]) == "1" {
			return ""
		}
	}
	return fmt.Sprintf("systemd does not delegate the unit %s: by default it stops the unit, and the run with it, when the kernel kills a process at the memory limit", unit)
}
