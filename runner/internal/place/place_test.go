package place

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	plain   = "Name:\tx\nCapEff:\t00000000a80425fb\n" // a Docker container's
	capable = "Name:\tx\nCapEff:\t000000c000001000\n" // BPF, PERFMON, NET_ADMIN
	first   = "0          0 4294967295\n"
)

func TestAt(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		env   string
		euid  int
		want  Place
		words string
	}{
		{"a root file system that says nothing", nil, "", 0, Place{Root: true}, "a host without containers"},
		{"Docker", map[string]string{"/.dockerenv": "", "/proc/self/status": plain, "/proc/self/uid_map": first}, "", 0,
			Place{Container: docker, Root: true}, "a Docker container"},
		{"Docker's mark in the first namespaces: a virtual machine made of an image",
			map[string]string{"/.dockerenv": "", "/proc/self/ns/pid": "->pid:[4026531836]",
				"/proc/self/ns/uts": "->uts:[4026531838]", "/proc/self/ns/ipc": "->ipc:[4026531839]",
				"/proc/cpuinfo": "flags\t\t: fpu vme hypervisor lahf_lm\n"}, "", 0,
			Place{Machine: vm, Root: true}, "a virtual machine"},
		{"a container with the host's pid namespace",
			map[string]string{"/.dockerenv": "", "/proc/self/ns/pid": "->pid:[4026531836]",
				"/proc/self/ns/uts": "->uts:[4026532178]", "/proc/self/ns/ipc": "->ipc:[4026532179]"}, "", 0,
			Place{Container: docker, Root: true}, "a Docker container"},
		{"Podman without root, of an ordinary user",
			map[string]string{"/run/.containerenv": "", "/proc/self/uid_map": "0 1000 1\n1 100000 65536\n"},
			"container=podman", 1000,
			Place{Container: podman, UserNamespace: true}, "a Podman container"},
		{"Kubernetes, by the environment, on Docker", map[string]string{"/.dockerenv": ""},
			"KUBERNETES_SERVICE_HOST=10.0.0.1", 0,
			Place{Container: kubernetes, Root: true}, "a Kubernetes pod"},
		{"Kubernetes, by its files", map[string]string{"/var/run/secrets/kubernetes.io/serviceaccount/token": "x"}, "",
			0,
			Place{Container: kubernetes, Root: true}, "a Kubernetes pod"},
		{"a container of another engine", nil, "container=lxc", 0, Place{Container: other, Root: true}, "a container"},
		{"GitHub Actions, on its virtual machine",
			map[string]string{"/sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
				"/sys/class/dmi/id/product_name": "Virtual Machine\n"}, "GITHUB_ACTIONS=true", 1001,
			Place{CI: gitHubActions, Machine: vm}, "GitHub Actions, a virtual machine"},
		{"GitHub Actions, in a job's container", map[string]string{"/.dockerenv": ""}, "GITHUB_ACTIONS=true", 0,
			Place{Container: docker, CI: gitHubActions, Root: true}, "a Docker container, GitHub Actions"},
		{"GitLab", map[string]string{"/.dockerenv": ""}, "GITLAB_CI=true", 0,
			Place{Container: docker, CI: gitLab, Root: true}, "a Docker container, GitLab CI"},
		{"WSL 2", map[string]string{"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}, "", 1000,
			Place{Machine: wsl2}, "WSL 2"},
		{"gVisor", map[string]string{"/.dockerenv": "", "/proc/sys/kernel/osrelease": "4.19.0-gvisor\n"}, "", 0,
			Place{Container: docker, Machine: gVisor, Root: true}, "a Docker container, gVisor"},
		{"gVisor before it said its name",
			map[string]string{"/proc/version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"}, "", 0,
			Place{Machine: gVisor, Root: true}, "gVisor"},
		{"Xen", map[string]string{"/sys/hypervisor/type": "xen\n"}, "", 0, Place{Machine: vm, Root: true},
			"a virtual machine"},
		{"Microsoft's own hardware",
			map[string]string{"/sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
				"/sys/class/dmi/id/product_name": "Surface Pro\n"}, "", 0,
			Place{Root: true}, "a host without containers"},
		{"capabilities for eBPF, and an AppArmor profile",
			map[string]string{"/.dockerenv": "", "/proc/self/status": capable,
				"/proc/self/attr/apparmor/current": "docker-default (enforce)\n"}, "", 0,
			Place{Container: docker, Root: true, BPF: true, AppArmor: true}, "a Docker container"},
		{"no AppArmor profile", map[string]string{"/proc/self/attr/apparmor/current": "unconfined\n"}, "", 0,
			Place{Root: true}, "a host without containers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				var err error
				if to, link := strings.CutPrefix(text, "->"); link {
					err = os.Symlink(to, path)
				} else {
					err = os.WriteFile(path, []byte(text), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			name, value, _ := strings.Cut(c.env, "=")
			got := at(root, func(key string) string {
				if key == name {
					return value
				}
				return ""
			}, c.euid)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != c.words {
				t.Errorf("in words %q, not %q", got, c.words)
			}
		})
	}
}

// The remedies for Docker and Podman are tested by running them, in the doctor tests.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		name, got, want string
	}{
		{"an ordinary user", Place{}.Observe(),
			`run it as root: sudo assay-run --user "$USER" ...; or grant the program CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (setcap cap_bpf,cap_perfmon,cap_net_admin+ep) and start it in a delegated cgroup`},
		{"an ordinary user without a cgroup", Place{Machine: vm}.Cgroups(),
			`run it as root: sudo assay-run --user "$USER" ...; or start it in a delegated cgroup: systemd-run --user --scope -p Delegate=yes assay-run ...`},
		{"root without capabilities is not told to become root", Place{Root: true}.Observe(),
			"give this process CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"},
		{"root with capabilities", Place{Root: true, BPF: true}.Observe(),
			"allow bpf() in the seccomp profile of this process, and use the host's user namespace"},
		{"GitHub Actions", Place{CI: gitHubActions}.Cgroups(),
			`run it with sudo: sudo -E env "PATH=$PATH" assay-run --user "$USER" ...`},
		{"a container of GitHub Actions", Place{Container: docker, CI: gitHubActions, Root: true}.Observe(),
			"set jobs.JOB.container.options of the workflow to: --cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN " +
				"--cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"},
		{"a container of GitLab", Place{Container: docker, CI: gitLab, Root: true}.Observe(),
			"in the runner's config.toml set [runners.docker] privileged = true (it has no setting for less)"},
		{"a pod of GitLab", Place{Container: kubernetes, CI: gitLab}.Cgroups(),
			"in the runner's config.toml set [runners.kubernetes] privileged = true"},
		{"a pod", Place{Container: kubernetes}.Observe(),
			"give the pod's container securityContext: {runAsUser: 0, privileged: true}"},
		{"a sandbox in a pod", Place{Container: kubernetes}.Namespaces(true),
			"give the pod hostUsers: false, and its container securityContext: {seccompProfile: {type: Unconfined}, " +
				"procMount: Unmasked}"},
		{"gVisor", Place{Container: docker, Machine: gVisor}.Observe(), remedyGVisor},
		{"Docker with a filter of its own", Place{Container: docker, Root: true, BPF: true}.Cgroups(),
			"start the container with: docker run --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"},
		{"Docker that refuses bpf() in spite of the capabilities",
			Place{Container: docker, CI: gitHubActions, Root: true, BPF: true}.Observe(),
			"set jobs.JOB.container.options of the workflow to: --cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN " +
				"--security-opt seccomp=unconfined --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"},
		{"AppArmor forbids to mount", Place{Container: docker, AppArmor: true}.Namespaces(true),
			"on the host, write a seccomp profile with: assay-run doctor --seccomp-profile > " +
				"assay-run-seccomp.json; start the container with: docker run --security-opt " +
				"seccomp=assay-run-seccomp.json --security-opt apparmor=unconfined --security-opt " +
				"systempaths=unconfined"},
		{"a container in a user namespace", Place{Container: podman, Root: true, UserNamespace: true}.Cgroups(),
			"use an engine that runs as root, without a user namespace for the container; start the container with: " +
				"podman run --cgroupns host -v /sys/fs/cgroup:/sys/fs/cgroup"},
		{"namespaces on a host", Place{}.Namespaces(true), ""},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
