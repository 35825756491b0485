package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/runner/internal/place"
)

// LayerError means that a layer that the policy needs is not available. The command was not started.
type LayerError struct {
	Layer  string
	Reason string
	// Remedy says how to make it available.
	Remedy string
}

func (e *LayerError) Error() string {
	return fmt.Sprintf("the sandbox needs the layer %s, which this host does not give: %s", e.Layer, e.Reason)
}

// PortError is a port of network.allowLocalPorts that cannot be forwarded. The command was not started.
type PortError struct {
	Port int
	Err  error
}

func (e *PortError) Error() string {
	return fmt.Sprintf("port %d of network.allowLocalPorts cannot be forwarded: %v", e.Port, e.Err)
}

func (e *PortError) Unwrap() error { return e.Err }

// Remedy says what to do about it.
func (e *PortError) Remedy() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("end the program that uses port %d of 127.0.0.1, or remove the port from "+
			"network.allowLocalPorts", e.Port)
	}
	return "choose a port that this user may listen on, or remove it from network.allowLocalPorts"
}

// OrDegrade is the end of a remedy for a layer that the command can also start without.
const OrDegrade = "; or go on without it by on_unavailable: degrade"

// Remedy says how to make a layer available that is not enforced.
func Remedy(l Layer) string {
	switch {
	case l.State == Enforced:
		return ""
	case l.Layer == LayerLandlock && (l.Errno == int(syscall.ENOSYS) || l.Errno == int(syscall.EOPNOTSUPP)):
		return "boot with Landlock (Linux 5.13 or later, lsm=landlock,...)" + OrDegrade
	case l.Layer == LayerSockets:
		return "run with namespaces on Linux 5.19 or later, not inside another sandbox, and without --kernel notify"
	case l.Layer == LayerSeccomp:
		return "run on a kernel with CONFIG_SECCOMP_FILTER" + OrDegrade
	case l.Layer == LayerNamespaces, l.Layer == LayerFiles, l.Layer == LayerNetwork:
		return namespaceRemedy(l) + OrDegrade
	case l.Layer == LayerCgroupBPF:
		return place.Here().Observe()
	case l.Layer == LayerPrivileges:
		return "run with CAP_SETUID, CAP_SETGID and CAP_SETPCAP, or with no capability at all" + OrDegrade
	}
	return "see assay-run doctor" + OrDegrade
}

func namespaceRemedy(l Layer) string {
	read := func(name string) string {
		b, _ := os.ReadFile("/proc/sys/" + name)
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor forbids user namespaces: give assay-run a profile with the rule \"userns,\", or set " +
			"kernel.apparmor_restrict_unprivileged_userns=0"
	case read("kernel/unprivileged_userns_clone") == "0":
		return "set kernel.unprivileged_userns_clone=1"
	case read("user/max_user_namespaces") == "0" || l.Errno == int(syscall.ENOSPC):
		return "set user.max_user_namespaces to more than 0"
	case l.Layer == LayerNetwork && l.State == Degraded && l.Errno == int(syscall.EPERM):
		return place.Here().Loopback()
	}
	if fix := place.Here().Namespaces(l.State == Unavailable); fix != "" {
		return fix
	}
	return "allow user namespaces, or run as root"
}
