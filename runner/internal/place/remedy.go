package place

import (
	_ "embed"
	"strings"
)

// Flags of docker run and podman run. Each is tested by running it.
const (
	flagsCgroup = "--cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"
	flagsBPF    = "--cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN"
	ownSeccomp  = "--security-opt seccomp=" + profileName
	noSeccomp   = "--security-opt seccomp=unconfined"
)

// profileName is what remedies call the file with Seccomp.
const profileName = "assay-run-seccomp.json"

// Seccomp is a seccomp profile for Docker and Podman with which all of a run works. It
// allows what their own profiles forbid and a run needs (namespaces, mounts, listeners,
// and with the capability eBPF), and forbids what else of the kernel those keep from a
// container.
//
//go:embed seccomp.json
var Seccomp []byte

// seccomp is the flag that brings that profile. The engine of GitHub Actions starts a
// container before there can be a file.
func (p Place) seccomp() string {
	if p.CI != "" {
		return noSeccomp
	}
	return ownSeccomp
}

// Cgroups is how to let a run create cgroups.
func (p Place) Cgroups() string {
	switch {
	case p.Machine == GVisor:
		return remedyGVisor
	case p.engine():
		return p.start(p.user() + flagsCgroup)
	case p.Container == Kubernetes: // who is not privileged has a cgroup namespace of its own
		return p.pod("securityContext: {runAsUser: 0, privileged: true}")
	case p.Root:
		return "mount a cgroup2 that this process can write: mount -t cgroup2 none /sys/fs/cgroup, or mount -o remount,rw /sys/fs/cgroup"
	}
	if p.CI != "" {
		return p.sudo()
	}
	return p.sudo() + "; or start it in a delegated cgroup: systemd-run --user --scope -p Delegate=yes assay-run ..."
}

// Observe is how to let a run load eBPF programs and attach them to its cgroup.
// If the process has the capabilities for that, a filter or a namespace stands in the way.
func (p Place) Observe() string {
	switch {
	case p.Machine == GVisor:
		return remedyGVisor
	case p.engine():
		seccomp := ""
		if p.BPF || p.Container == Podman { // Podman's profile wants SYS_ADMIN for bpf
			seccomp = p.seccomp() + " "
		}
		fix := p.start(p.user() + flagsBPF + " " + seccomp + flagsCgroup)
		if p.Container == Docker && p.CI == "" {
			fix += "; for Docker before version 23, which does not know BPF: " + p.user() + "--cap-add SYS_ADMIN " + flagsCgroup
		}
		return fix
	case p.Container == Kubernetes:
		return p.pod("securityContext: {runAsUser: 0, privileged: true}")
	case p.BPF:
		return "allow bpf() in the seccomp profile of this process, and use the host's user namespace"
	case p.Root:
		return "give this process CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
	}
	if p.CI != "" {
		return p.sudo()
	}
	return p.sudo() + "; or grant the program CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (setcap cap_bpf,cap_perfmon,cap_net_admin+ep) and start it in a delegated cgroup"
}

// Attach is Observe for assay-run attach, which has no --user.
func (p Place) Attach() string {
	if p.Root || p.BPF || p.CI != "" || p.Contained() {
		return p.Observe()
	}
	return "run it as root: sudo assay-run attach ..."
}

// Listener is how to let a run load a seccomp filter with a listener, in a container.
func (p Place) Listener() string {
	switch {
	case p.engine():
		return p.start(p.seccomp())
	case p.Container == Kubernetes:
		return p.pod("securityContext: {seccompProfile: {type: Unconfined}}")
	}
	return "allow seccomp() in the container's seccomp profile"
}

// Namespaces is how to let the sandbox make namespaces (none: it cannot), and
// mount /proc there. It is empty where this place has nothing to say.
func (p Place) Namespaces(none bool) string {
	switch {
	case p.Machine == GVisor:
		return remedyGVisor
	case p.engine():
		var flags []string
		if none {
			flags = append(flags, p.seccomp())
		}
		if p.AppArmor {
			flags = append(flags, "--security-opt apparmor=unconfined")
		}
		if p.Container == Docker {
			flags = append(flags, "--security-opt systempaths=unconfined")
		} else {
			flags = append(flags, "--security-opt unmask=ALL")
		}
		return p.start(strings.Join(flags, " "))
	case p.Container == Kubernetes:
		if p.CI == "" {
			return "give the pod hostUsers: false, and its container securityContext: {seccompProfile: {type: Unconfined}, procMount: Unmasked}"
		}
		return p.pod("")
	}
	return ""
}

// Loopback is how to let the sandbox set up a network namespace that it made
// with CAP_SYS_ADMIN.
func (p Place) Loopback() string {
	if p.engine() {
		return p.start("--cap-add NET_ADMIN")
	}
	return "give this process CAP_NET_ADMIN"
}

const remedyGVisor = "gVisor's kernel does not have it: use the host's kernel (docker run --runtime runc, or a pod without gVisor's runtimeClassName)"

// engine: whoever starts the container gives flags of docker run.
func (p Place) engine() bool { return p.Container == Docker || p.Container == Podman }

// user makes root the container's user: capabilities that are added, and the
// host's cgroups, are root's. The command can get another one by --user.
func (p Place) user() string {
	if p.Root {
		return ""
	}
	return "--user root "
}

// start says where the flags go.
func (p Place) start(flags string) string {
	if p.CI == GitLab {
		return "in the runner's config.toml set [runners.docker] privileged = true (it has no setting for less)"
	}
	where := "start the container with: " + p.Container + " run " + flags
	if strings.Contains(flags, profileName) {
		where = "on the host, write a seccomp profile with: assay-run doctor --seccomp-profile > " + profileName + "; " + where
	}
	if p.CI == GitHubActions {
		where = "set jobs.JOB.container.options of the workflow to: " + flags
	}
	if p.UserNamespace {
		where = "use an engine that runs as root, without a user namespace for the container; " + where
	}
	return where
}

func (p Place) pod(context string) string {
	if p.CI == GitLab {
		return "in the runner's config.toml set [runners.kubernetes] privileged = true"
	}
	return "give the pod's container " + context
}

// sudo is how an ordinary user becomes root and the command does not.
func (p Place) sudo() string {
	if p.CI == GitHubActions {
		return `run it with sudo: sudo -E env "PATH=$PATH" assay-run --user "$USER" ...`
	}
	return `run it as root: sudo assay-run --user "$USER" ...`
}
