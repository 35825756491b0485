package container

import (
	"strings"
	"testing"
)

var (
	a = strings.Repeat("0a", 32)
	b = strings.Repeat("b1", 32)
)

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		want Container
	}{
		"Docker, cgroupfs":                      {"/docker/" + a, Container{a, ""}},
		"Docker, systemd":                       {"/system.slice/docker-" + a + ".scope", Container{a, Docker}},
		"Docker, below a parent that was asked": {"/agent/" + a, Container{a, ""}},
		"Docker, a pod of Kubernetes":           {"/kubepods/burstable/pod3c1/" + a, Container{a, ""}},
		"Podman, cgroupfs":                      {"/libpod_parent/libpod-" + a, Container{a, Podman}},
		"Podman with crun": {"/machine.slice/libpod-" + a + ".scope/container",
			Container{a, Podman}},
		"Podman, in a pod":                        {"/libpod_parent/" + b + "/libpod-" + a, Container{a, Podman}},
		"a pod of Podman is none":                 {"/libpod_parent/" + b, Container{}},
		"conmon is outside of what it supervises": {"/libpod_parent/libpod-conmon-" + a, Container{}},
		"containerd below a pod, systemd": {"/kubepods.slice/kubepods-pod3c1.slice/cri-containerd-" + a +
			".scope", Container{a, Containerd}},
		"containerd, systemd's form on cgroupfs": {"/kubepods-pod3c1.slice:cri-containerd:" + a,
			Container{a, Containerd}},
		"nerdctl":                    {"/system.slice/nerdctl-" + a + ".scope", Container{a, Containerd}},
		"CRI-O":                      {"/kubepods.slice/crio-" + a + ".scope", Container{a, CRIO}},
		"CRI-O's conmon":             {"/kubepods.slice/crio-conmon-" + a + ".scope", Container{}},
		"systemd in a container":     {"/docker/" + a + "/init.scope", Container{a, ""}},
		"a container in a container": {"/docker/" + a + "/docker/" + b, Container{b, ""}},
		"an engine in a container, with its conmon": {"/docker/" + a + "/libpod_parent/libpod-conmon-" + b,
			Container{a, ""}},
		"no container":                   {"/user.slice/session-3.scope", Container{}},
		"an id that is too short":        {"/docker/" + a[1:], Container{}},
		"an id in capitals":              {"/docker/" + strings.ToUpper(a), Container{}},
		"a scope that nothing is before": {"/system.slice/" + a + ".scope", Container{}},
		"nothing":                        {"", Container{}},
	} {
		if got, ok := Of(c.path); got != c.want || ok != (c.want.ID != "") {
			t.Errorf("%s: Of(%q) is %+v, %v", name, c.path, got, ok)
		}
	}
}
