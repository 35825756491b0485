package engine

import (
	"os"
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
		got, composes := withParent(strings.Fields(c.args), place{parent: "/p"})
		if d := cmp.Diff(strings.Fields(c.want), append([]string{}, got...)); d != "" || composes {
			t.Errorf("podman %s (-want +got):\n%s", c.args, d)
		}
	}
	for _, args := range []string{"compose -f x up", "compose run job"} {
		if got, composes := withParent(strings.Fields(args), place{parent: "/p"}); !composes ||
			strings.Join(got, " ") != args {
			t.Errorf("podman %s: %q, %v", args, got, composes)
		}
	}
}

// Podman takes a slice only if it asks systemd for cgroups. The client of a service does
// not know the option.
func TestManager(t *testing.T) {
	for _, c := range []struct{ args, env, want string }{
		{"run image", "", "--cgroup-manager=systemd run --cgroup-parent=a.slice image"},
		{"--syslog container create image", "",
			"--cgroup-manager=systemd --syslog container create --cgroup-parent=a.slice image"},
		{"--cgroup-manager cgroupfs run image", "",
			"--cgroup-manager=systemd --cgroup-manager cgroupfs run --cgroup-parent=a.slice image"},
		{"--remote run image", "", "--remote run --cgroup-parent=a.slice image"},
		{"--url=unix:///s run image", "", "--url=unix:///s run --cgroup-parent=a.slice image"},
		{"run image", "CONTAINER_HOST", "run --cgroup-parent=a.slice image"},
		{"ps", "", "ps"},
	} {
		t.Run(c.args+c.env, func(t *testing.T) {
			for _, key := range []string{"CONTAINER_HOST", "CONTAINER_CONNECTION"} {
				t.Setenv(key, "") // restored after the test
				if key != c.env {
					os.Unsetenv(key)
				}
			}
			got, _ := withParent(strings.Fields(c.args), place{"a.slice", Systemd})
			if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
