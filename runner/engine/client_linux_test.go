package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithParent(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run --rm image run", "run --cgroup-parent=/p --rm image run"},
		{"create image", "create --cgroup-parent=/p image"},
		{"container run image", "container run --cgroup-parent=/p image"},
		{"container create image", "container create --cgroup-parent=/p image"},
		{"container ls", "container ls"},
		{"container", "container"},
		{"--url unix:///run/run --syslog run image", "--url unix:///run/run --syslog run --cgroup-parent=/p image"},
		{"--url=unix:///s run image", "--url=unix:///s run --cgroup-parent=/p image"},
		{"--runtime create run image", "--runtime create run --cgroup-parent=/p image"},
		{"--connection run ps", "--connection run ps"},
		{"run --cgroup-parent /own image", "run --cgroup-parent=/p --cgroup-parent /own image"},
		{"exec box podman run image", "exec box podman run image"},
		{"network create net", "network create net"},
		{"", ""},
		{"--version", "--version"},
		{"compose ps", "compose ps"},
	} {
		got, composes := withParent(strings.Fields(c.args), "/p")
		if d := cmp.Diff(strings.Fields(c.want), append([]string{}, got...)); d != "" || composes {
			t.Errorf("podman %s (-want +got):\n%s", c.args, d)
		}
	}
	for _, args := range []string{"compose -f x up", "compose run job"} {
		if got, composes := withParent(strings.Fields(args), "/p"); !composes || strings.Join(got, " ") != args {
			t.Errorf("podman %s: %q, %v", args, got, composes)
		}
	}
}
