package engine

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestSocket: a daemon is found as docker finds it, in its order: DOCKER_HOST, DOCKER_CONTEXT, the current context,
// the usual socket.
func TestSocket(t *testing.T) {
	config := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(config, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, host := range map[string]string{"rootless": "unix:///run/user/1000/docker.sock", "far": "ssh://far"} {
		write(fmt.Sprintf("contexts/meta/%x/meta.json", sha256.Sum256([]byte(name))),
			`{"Name":"`+name+`","Endpoints":{"docker":{"Host":"`+host+`"}}}`)
	}
	home := "DOCKER_CONFIG=" + config
	for _, c := range []struct {
		name, file string
		env        []string
		want       string
	}{
		{"nothing is set", "", nil, "/var/run/docker.sock"},
		{"a host", "", []string{"DOCKER_HOST=unix:///x", "DOCKER_CONTEXT=far"}, "/x"},
		{"a host elsewhere", "", []string{"DOCKER_HOST=tcp://far:2375"}, ""},
		{"the context in use", `{"currentContext":"rootless"}`, []string{home}, "/run/user/1000/docker.sock"},
		{"a context elsewhere", `{"currentContext":"far"}`, []string{home}, ""},
		{"another context", `{"currentContext":"far"}`, []string{home, "DOCKER_CONTEXT=rootless"},
			"/run/user/1000/docker.sock"},
		{"the default context", `{"currentContext":"far"}`, []string{home, "DOCKER_CONTEXT=default"},
			"/var/run/docker.sock"},
		{"a context that is not there", `{"currentContext":"gone"}`, []string{home}, ""},
		{"a torn configuration", `{"currentCon`, []string{home}, "/var/run/docker.sock"},
	} {
		write("config.json", c.file)
		if got := Socket(c.env); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
