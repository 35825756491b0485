// Package place detects where this process runs (a container and its engine, a CI service, a virtual machine), as far
// as that decides how to provide what is missing, and words remedies for that place.
package place

import (
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Place is where this process runs. Empty fields mean that nothing of that sort was detected.
type Place struct {
	// Container is docker, podman, kubernetes, or other.
	Container string `json:"container,omitempty"`
	// CI is github_actions or gitlab.
	CI string `json:"ci,omitempty"`
	// Machine is gvisor, wsl2 or vm.
	Machine string `json:"machine,omitempty"`
	// Root means that the effective user is root in this user namespace.
	Root bool `json:"root"`
	// BPF means that the process has the capabilities to load eBPF programs and attach them to a cgroup.
	BPF bool `json:"bpf_capabilities"`
	// UserNamespace means that the user namespace is not the host's.
	UserNamespace bool `json:"user_namespace,omitempty"`
	// AppArmor means that a profile confines this process.
	AppArmor bool `json:"apparmor,omitempty"`
}

// Names of places.
const (
	docker        = "docker"
	podman        = "podman"
	kubernetes    = "kubernetes"
	other         = "other"
	gitHubActions = "github_actions"
	gitLab        = "gitlab"
	gVisor        = "gvisor"
	wsl2          = "wsl2"
	vm            = "vm"
)

// Here is the place of this process.
var Here = sync.OnceValue(func() Place { return at("/", os.Getenv, os.Geteuid()) })

// at detects the place from the files below root, the environment, and the effective user id. Missing and unreadable
// files mean nothing.
func at(root string, env func(string) string, euid int) Place {
	f := files(root)
	return Place{
		Container: f.container(env), CI: ci(env), Machine: f.machine(),
		Root: euid == 0, BPF: f.capable(), UserNamespace: f.mapped(), AppArmor: f.confined(),
	}
}

type files string

func (f files) has(path string) bool {
	_, err := os.Stat(filepath.Join(string(f), path))
	return err == nil
}

func (f files) read(path string) string {
	b, _ := os.ReadFile(filepath.Join(string(f), path))
	return strings.TrimSpace(string(b))
}

// container checks for Kubernetes first, since its pods may also have Docker's mark. The mark alone is not enough:
// some virtual machines are made from Docker images.
func (f files) container(env func(string) string) string {
	switch {
	case f.initial():
		return ""
	case env("KUBERNETES_SERVICE_HOST") != "", f.has("/var/run/secrets/kubernetes.io/serviceaccount"):
		return kubernetes
	case f.has("/run/.containerenv"):
		return podman
	case f.has("/.dockerenv"):
		return docker
	case f.has("/run/systemd/container"), env("container") != "":
		return other
	}
	return ""
}

// initial reports whether the process is in the kernel's first pid, UTS and IPC namespaces, which have known numbers
// (PROC_PID_INIT_INO and so on, include/linux/proc_ns.h). Even a container that shares some of them with the host has
// at least one of its own.
func (f files) initial() bool {
	for name, first := range map[string]string{"pid": "pid:[4026531836]", "uts": "uts:[4026531838]",
		"ipc": "ipc:[4026531839]"} {
		if ns, _ := os.Readlink(filepath.Join(string(f), "/proc/self/ns", name)); ns != first {
			return false
		}
	}
	return true
}

func ci(env func(string) string) string {
	switch {
	case env("GITHUB_ACTIONS") == "true":
		return gitHubActions
	case env("GITLAB_CI") == "true":
		return gitLab
	}
	return ""
}

// machine recognizes gVisor by its kernel's release or, for older versions, by its fixed version, and WSL2 by the
// release of Microsoft's kernel.
func (f files) machine() string {
	release := f.read("/proc/sys/kernel/osrelease")
	switch {
	case strings.Contains(release, "gvisor"),
		strings.Contains(f.read("/proc/version"), "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"):
		return gVisor
	case strings.Contains(release, "WSL2"), strings.Contains(release, "microsoft-standard"):
		return wsl2
	case f.has("/sys/hypervisor/type"), f.virtualCPU():
		return vm
	}
	return ""
}

// virtualCPU reports whether the processor reports a hypervisor (x86), or the firmware names one (arm64 has no such
// flag).
func (f files) virtualCPU() bool {
	for line := range strings.Lines(f.read("/proc/cpuinfo")) {
		if name, flags, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "flags" {
			return strings.Contains(" "+flags+" ", " hypervisor ")
		}
	}
	vendor := f.read("/sys/class/dmi/id/sys_vendor")
	for _, v := range []string{"QEMU", "Amazon EC2", "VMware", "Google", "innotek", "Xen", "Parallels"} {
		if strings.HasPrefix(vendor, v) {
			return true
		}
	}
	return vendor == "Microsoft Corporation" && f.read("/sys/class/dmi/id/product_name") == "Virtual Machine"
}

// mapped reports whether user ids differ from the host's (user_namespaces(7)).
func (f files) mapped() bool {
	fields := strings.Fields(f.read("/proc/self/uid_map"))
	return len(fields) > 0 && strings.Join(fields, " ") != "0 0 4294967295"
}

// capable reports whether the process may load an observer's programs (proc_pid_status(5)). The numbers are those of
// capabilities(7).
func (f files) capable() bool {
	const netAdmin, sysAdmin, perfmon, bpf = 1 << 12, 1 << 21, 1 << 38, 1 << 39
	for line := range strings.Lines(f.read("/proc/self/status")) {
		if name, value, _ := strings.Cut(line, ":"); name == "CapEff" {
			caps, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return caps&sysAdmin != 0 || caps&(netAdmin|perfmon|bpf) == netAdmin|perfmon|bpf
		}
	}
	return false
}

func (f files) confined() bool {
	label := f.read("/proc/self/attr/apparmor/current")
	return label != "" && label != "unconfined"
}

// Contained reports whether this is a container. What is missing must then be provided by whoever starts it.
func (p Place) Contained() bool { return p.Container != "" }

// String describes the place.
func (p Place) String() string {
	var words []string
	for _, name := range []string{p.Container, p.CI, p.Machine} {
		if name != "" {
			words = append(words, names[name])
		}
	}
	if len(words) == 0 {
		return "a host without containers"
	}
	return strings.Join(words, ", ")
}

var names = map[string]string{
	docker: "a Docker container", podman: "a Podman container", kubernetes: "a Kubernetes pod", other: "a container",
	gitHubActions: "GitHub Actions", gitLab: "GitLab CI", gVisor: "gVisor", wsl2: "WSL 2", vm: "a virtual machine",
}

// Flags of docker run and podman run. Each is tested by running it.
const (
	flagsCgroup = "--cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"
	flagsBPF    = "--cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN"
	ownSeccomp  = "--security-opt seccomp=" + profileName
	noSeccomp   = "--security-opt seccomp=unconfined"
)

// profileName is the file name for Seccomp in remedies.
const profileName = "assay-run-seccomp.json"

// Seccomp is a seccomp profile for Docker and Podman with which all of a run works. It allows what
// a run needs and their own profiles forbid (namespaces, mounts, listeners, and with the capability
// eBPF), and forbids everything else that those forbid.
//
//go:embed seccomp.json
var Seccomp []byte

// seccomp is the flag for that profile. GitHub Actions starts a container before the file can exist.
func (p Place) seccomp() string {
	if p.CI != "" {
		return noSeccomp
	}
	return ownSeccomp
}

// Cgroups says how to let a run create cgroups.
func (p Place) Cgroups() string {
	switch {
	case p.Machine == gVisor:
		return remedyGVisor
	case p.engine():
		return p.start(p.user() + flagsCgroup)
	case p.Container == kubernetes: // without privileges, it has its own cgroup namespace
		return p.pod("securityContext: {runAsUser: 0, privileged: true}")
	case p.Root:
		return "mount a cgroup2 that this process can write: mount -t cgroup2 none /sys/fs/cgroup, or mount -o " +
			"remount,rw /sys/fs/cgroup"
	}
	if p.CI != "" {
		return p.sudo()
	}
	return p.sudo() + "; or start it in a delegated cgroup: systemd-run --user --scope -p Delegate=yes assay-run ..."
}

// Observe says how to let a run load eBPF programs and attach them to its cgroup. If the process has the capabilities
// for that, a filter or a namespace prevents it.
func (p Place) Observe() string {
	switch {
	case p.Machine == gVisor:
		return remedyGVisor
	case p.engine():
		seccomp := ""
		if p.BPF || p.Container == podman { // podman's profile requires SYS_ADMIN for bpf
			seccomp = p.seccomp() + " "
		}
		fix := p.start(p.user() + flagsBPF + " " + seccomp + flagsCgroup)
		if p.Container == docker && p.CI == "" {
			fix += "; for Docker before version 23, which does not know BPF: " + p.user() + "--cap-add SYS_ADMIN " +
				flagsCgroup
		}
		return fix
	case p.Container == kubernetes:
		return p.pod("securityContext: {runAsUser: 0, privileged: true}")
	case p.BPF:
		return "allow bpf() in the seccomp profile of this process, and use the host's user namespace"
	case p.Root:
		return "give this process CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
	}
	if p.CI != "" {
		return p.sudo()
	}
	return p.sudo() + "; or grant the program CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (setcap " +
		"cap_bpf,cap_perfmon,cap_net_admin+ep) and start it in a delegated cgroup"
}

// Attach is Observe for assay-run attach, which has no --user.
func (p Place) Attach() string {
	if p.Root || p.BPF || p.CI != "" || p.Contained() {
		return p.Observe()
	}
	return "run it as root: sudo assay-run attach ..."
}

// Listener says how to let a run load a seccomp filter with a listener, in a container.
func (p Place) Listener() string {
	switch {
	case p.engine():
		return p.start(p.seccomp())
	case p.Container == kubernetes:
		return p.pod("securityContext: {seccompProfile: {type: Unconfined}}")
	}
	return "allow seccomp() in the container's seccomp profile"
}

// Namespaces says how to let the sandbox make namespaces (none: it cannot) and mount /proc there. It is empty if
// there is no advice for this place.
func (p Place) Namespaces(none bool) string {
	switch {
	case p.Machine == gVisor:
		return remedyGVisor
	case p.engine():
		var flags []string
		if none {
			flags = append(flags, p.seccomp())
		}
		if p.AppArmor {
			flags = append(flags, "--security-opt apparmor=unconfined")
		}
		if p.Container == docker {
			flags = append(flags, "--security-opt systempaths=unconfined")
		} else {
			flags = append(flags, "--security-opt unmask=ALL")
		}
		return p.start(strings.Join(flags, " "))
	case p.Container == kubernetes:
		if p.CI == "" {
			return "give the pod hostUsers: false, and its container securityContext: {seccompProfile: {type: " +
				"Unconfined}, procMount: Unmasked}"
		}
		return p.pod("")
	}
	return ""
}

// Loopback says how to let the sandbox set up a network namespace that it made with CAP_SYS_ADMIN.
func (p Place) Loopback() string {
	if p.engine() {
		return p.start("--cap-add NET_ADMIN")
	}
	return "give this process CAP_NET_ADMIN"
}

const remedyGVisor = "gVisor's kernel does not have it: use the host's kernel (docker run --runtime runc, or a pod " +
	"without gVisor's runtimeClassName)"

// engine reports whether the container was started with flags of docker run.
func (p Place) engine() bool { return p.Container == docker || p.Container == podman }

// user makes root the container's user, since only root gets added capabilities and the host's cgroups. The command
// can run as another user with --user.
func (p Place) user() string {
	if p.Root {
		return ""
	}
	return "--user root "
}

// start says where the flags go.
func (p Place) start(flags string) string {
	if p.CI == gitLab {
		return "in the runner's config.toml set [runners.docker] privileged = true (it has no setting for less)"
	}
	where := "start the container with: " + p.Container + " run " + flags
	if strings.Contains(flags, profileName) {
		where = "on the host, write a seccomp profile with: assay-run doctor --seccomp-profile > " + profileName +
			"; " + where
	}
	if p.CI == gitHubActions {
		where = "set jobs.JOB.container.options of the workflow to: " + flags
	}
	if p.UserNamespace {
		where = "use an engine that runs as root, without a user namespace for the container; " + where
	}
	return where
}

func (p Place) pod(context string) string {
	if p.CI == gitLab {
		return "in the runner's config.toml set [runners.kubernetes] privileged = true"
	}
	return "give the pod's container " + context
}

// sudo says how an ordinary user becomes root and the command does not.
func (p Place) sudo() string {
	if p.CI == gitHubActions {
		return `run it with sudo: sudo -E env "PATH=$PATH" assay-run --user "$USER" ...`
	}
	return `run it as root: sudo assay-run --user "$USER" ...`
}
