package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithParent(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"docker", "run --rm image run", "run --cgroup-parent=/p --rm image run"},
		{"docker", "create image", "create --cgroup-parent=/p image"},
		{"docker", "container run image", "container run --cgroup-parent=/p image"},
		{"docker", "container ls", "container ls"},
		{"docker", "-H unix:///run/run --debug run image", "-H unix:///run/run --debug run --cgroup-parent=/p image"},
		{"docker", "--host=unix:///s run image", "--host=unix:///s run --cgroup-parent=/p image"},
		{"docker", "--context run ps", "--context run ps"},
		{"docker", "run --cgroup-parent /own image", "run --cgroup-parent=/p --cgroup-parent /own image"},
		{"docker", "exec box docker run image", "exec box docker run image"},
		{"docker", "network create net", "network create net"},
		{"docker", "", ""},
		{"docker", "--version", "--version"},
		{"podman", "--runtime create run image", "--runtime create run --cgroup-parent=/p image"},
		{"podman", "container create image", "container create --cgroup-parent=/p image"},
		{"podman", "container", "container"},
		{"docker", "compose ps", "compose ps"},
	} {
		got, composes := withParent(c.name, strings.Fields(c.args), "/p")
		if d := cmp.Diff(strings.Fields(c.want), append([]string{}, got...)); d != "" || composes {
			t.Errorf("%s %s (-want +got):\n%s", c.name, c.args, d)
		}
	}
	for _, c := range []struct{ name, args string }{{"docker", "compose -f x up"}, {"docker-compose", "up -d"}, {"podman", "compose run job"}} {
		if got, composes := withParent(c.name, strings.Fields(c.args), "/p"); !composes || strings.Join(got, " ") != c.args {
			t.Errorf("%s %s: %q, %v", c.name, c.args, got, composes)
		}
	}
}
