package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
)

// relayed makes a relay to a daemon.
func relayed(t *testing.T, daemon *Engine, parent string, watch Watch) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	r, err := NewRelay(daemon, socket, parent, watch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); daemon.Close() })
	return socket
}

// TestRelay: docker works the same through a relay, and the containers that it makes have the cgroup parent.
func TestRelay(t *testing.T) {
	e := enginetest.Docker(t)
	parent := "/assay-relay-test-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() { e.RemoveGroups(parent) })
	var mu sync.Mutex
	asked := map[string]uint32{}
	socket := relayed(t, New(Docker, e.Socket), parent, Watch{Starting: func(pid uint32, c *Container) {
		mu.Lock()
		defer mu.Unlock()
		asked[c.Name] = pid
	}})
	dir := t.TempDir()
	docker := func(in []byte, args ...string) (out string, pid int, code int) {
		t.Helper()
		cmd := e.Command(args...)
		cmd.Env = append(cmd.Env, "DOCKER_HOST=unix://"+socket)
		cmd.Dir = dir
		if in != nil {
			cmd.Stdin = bytes.NewReader(in)
		}
		var b bytes.Buffer
		cmd.Stdout, cmd.Stderr = &b, os.Stderr
		err := cmd.Run()
		if _, ok := err.(*exec.ExitError); err != nil && !ok {
			t.Fatal(err)
		}
		return b.String(), cmd.Process.Pid, cmd.ProcessState.ExitCode()
	}
	check := func(what, got, want string, code, wantCode int) {
		t.Helper()
		if got != want || code != wantCode {
			t.Errorf("%s: %d bytes %.200q, exit code %d, want %d bytes %.200q, exit code %d", what, len(got), got, code,
				len(want), want, wantCode)
		}
	}
	large := make([]byte, 8<<20)
	rand.Read(large)
	if err := os.WriteFile(filepath.Join(dir, "large"), large, 0o600); err != nil {
		t.Fatal(err)
	}

	out, pid, code := docker(large, "run", "-i", "--name=pipe", "--network=none", enginetest.Image, "sh", "-c",
		"cat; exit 7")
	check("streams", out, string(large), code, 7)
	mu.Lock()
	if asked["pipe"] != uint32(pid) {
		t.Errorf("%d asked for the container, not %d", asked["pipe"], pid)
	}
	mu.Unlock()
	out, _, code = docker(nil, "run", "--rm", "--network=none", enginetest.Image, "grep", "^0::", "/proc/self/cgroup")
	if !strings.HasPrefix(out, "0::"+parent+"/") || code != 0 {
		t.Errorf("the container is in %s", out)
	}
	docker(nil, "run", "-d", "--name=box", "--network=none", enginetest.Image, "sh", "-c",
		"trap 'exit 0' TERM; sleep 600 & wait")
	out, _, code = docker([]byte("in"), "exec", "-i", "box", "sh", "-c", "cat; exit 4")
	check("exec", out, "in", code, 4)
	if _, _, code = docker(nil, "cp", "large", "box:/tmp/large"); code != 0 {
		t.Error("cp: exit code", code)
	}
	out, _, code = docker(nil, "exec", "box", "cat", "/tmp/large")
	check("cp and back", out, string(large), code, 0)
	docker(nil, "run", "--name=lines", "--network=none", enginetest.Image, "seq", "200000")
	out, _, code = docker(nil, "logs", "--follow", "lines")
	if lines := strings.Count(out, "\n"); lines != 200000 || code != 0 {
		t.Errorf("logs: %d lines, exit code %d", lines, code)
	}
	out, _, code = docker(nil, "export", "box")
	if !strings.Contains(out, string(large)) || code != 0 {
		t.Errorf("export: %d bytes, exit code %d", len(out), code)
	}
	out, _, code = docker([]byte(out), "import", "-", "again")
	if !strings.HasPrefix(out, "sha256:") || code != 0 {
		t.Errorf("import: %q, exit code %d", out, code)
	}
	if _, _, code = docker(nil, "start", "no-such-container"); code != 1 {
		t.Error("a container that is not there: exit code", code)
	}
	wait := make(chan string, 1)
	go func() { out, _, _ := docker(nil, "wait", "box"); wait <- out }()
	docker(nil, "stop", "box")
	check("wait", <-wait, "0\n", 0, 0)
}

// The relay reports what the daemon may do outside its cgroup parent, with the request's line, and nothing else.
func TestWhatTheRelayTells(t *testing.T) {
	daemon := filepath.Join(t.TempDir(), "d")
	l, err := net.Listen("unix", daemon)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{
		"/v1.40/containers/mine/json":    `{"Id":"1","HostConfig":{"CgroupParent":"/p"}}`,
		"/v1.40/containers/foreign/json": `{"Id":"2","HostConfig":{"CgroupParent":""}}`,
		"/v1.40/exec/e1/json":            `{"ContainerID":"mine"}`,
		"/v1.40/exec/e2/json":            `{"ContainerID":"foreign"}`,
		"/v1.40/volumes/alone":           `{"Driver":"local","Options":null}`,
		"/v1.40/volumes/ours":            `{"Driver":"local"}`,
		"/v1.40/volumes/shared":          `{"Driver":"local"}`,
		"/v1.40/volumes/served":          `{"Driver":"local","Options":{"type":"nfs"}}`,
		"/v1.40/volumes/driven":          `{"Driver":"nfs"}`,
	}
	users := map[string]string{
		`{"volume":["alone"]}`:  `[]`,
		`{"volume":["ours"]}`:   `[{"Id":"mine"}]`,
		`{"volume":["shared"]}`: `[{"Id":"mine"},{"Id":"foreign"}]`,
		`{"volume":["served"]}`: `[]`,
		`{"volume":["driven"]}`: `[]`,
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := known[r.URL.Path]; ok {
			io.WriteString(w, answer)
		} else if r.URL.Path == "/v1.40/containers/json" && r.URL.Query().Get("all") == "1" {
			io.WriteString(w, users[r.URL.Query().Get("filters")])
		} else if strings.Contains(r.URL.Path, "/volumes/") {
			http.Error(w, `{"message":"no such volume"}`, http.StatusNotFound)
		} else if strings.HasSuffix(r.URL.Path, "/json") {
			http.Error(w, `{"message":"no such container"}`, http.StatusNotFound)
		}
	})}
	go s.Serve(l)
	defer s.Close()
	var mu sync.Mutex
	var told []string
	socket := relayed(t, New(Docker, daemon), "/p", Watch{
		Starting: func(uint32, *Container) {},
		Outside: func(_ uint32, line string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, line)
		},
	})
	client := &http.Client{Transport: &http.Transport{DialContext: func(
		ctx context.Context, _, _ string,
	) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	for request, want := range map[string]bool{
		"GET /v1.43/containers/foreign/json":                                           false,
		"HEAD /_ping":                                                                  false,
		"GET /containers/foreign/attach/ws":                                            true,
		"GET /containers/mine/attach/ws":                                               false,
		"POST /v1.43/build?t=x":                                                        true,
		"POST /session":                                                                true,
		"POST /v1.43/images/create?fromImage=x":                                        true,
		"POST /v1.43/images/a/b/push":                                                  true,
		"POST /v1.43/images/a/b/tag?repo=c":                                            false,
		"DELETE /images/a/b":                                                           false,
		"POST /v1.43/services/create":                                                  true,
		"POST /swarm/init":                                                             true,
		"POST /plugins/x/enable":                                                       true,
		"POST /commit?container=mine":                                                  true,
		"POST /v4.0.0/libpod/containers/create":                                        true,
		"POST /libpod/pods/x/start":                                                    true,
		"POST /containers/foreign/start":                                               true,
		"POST /containers/foreign/restart":                                             true,
		"POST /containers/foreign/exec":                                                true,
		"POST /containers/foreign/update":                                              true,
		"PUT /containers/foreign/archive?path=/":                                       true,
		"DELETE /containers/foreign":                                                   true,
		"POST /containers/prune":                                                       true,
		"POST /volumes/prune":                                                          true,
		"POST /volumes/create":                                                         true,
		"POST /exec/e2/start":                                                          true,
		"PATCH /anything":                                                              true,
		"post /containers/create":                                                      true,
		"POST /containers/mine/start":                                                  false,
		"POST /v1.43/containers/mine/exec":                                             false,
		"PUT /containers/mine/archive?path=/":                                          true,
		"HEAD /containers/mine/archive?path=/":                                         false,
		"GET /containers/mine/archive?path=/":                                          true,
		"GET /v1.43/containers/mine/export":                                            true,
		"GET /containers/mine/top?ps_args=aux":                                         true,
		"GET /containers/mine/logs?stdout=1":                                           false,
		"POST /containers/mine/checkpoints":                                            true,
		"POST /containers/mine/start?checkpoint=c":                                     true,
		`POST /v1.23/containers/mine/start {"CgroupParent":"/own"}`:                    true,
		"POST /containers/mine/kill":                                                   false,
		"POST /containers/mine/unheard-of":                                             true,
		"DELETE /v1.43/containers/mine?force=1":                                        false,
		"POST /containers/nowhere/start":                                               false,
		"POST /exec/e1/start":                                                          false,
		"POST /containers/foreign/wait":                                                false,
		`POST /networks/create {"Name":"n"}`:                                           false,
		`POST /networks/create {"Name":"n","Driver":"evil"}`:                           true,
		`POST /networks/create {"Name":"n","IPAM":{"Driver":"default"}}`:               false,
		`POST /networks/create {"Name":"n","IPAM":{"Driver":"evil"}}`:                  true,
		`POST /networks/n/connect {"Container":"mine"}`:                                false,
		`POST /networks/n/connect {"Container":"foreign"}`:                             true,
		`POST /networks/n/disconnect {"container":"foreign"}`:                          true,
		"POST /networks/prune":                                                         true,
		"DELETE /networks/n":                                                           false,
		"POST /containers/mine/alias/restart":                                          true,
		"POST /containers/mine/alias/exec":                                             true,
		"DELETE /containers/mine/alias":                                                true,
		"PUT /containers/mine/alias/archive?path=/":                                    true,
		"GET /containers/mine/alias/attach/ws":                                         true,
		"POST /v1.43/auth":                                                             true,
		"GET /distribution/evil.example/x/json":                                        true,
		"GET /v1.43/images/search?term=evil.example/x":                                 true,
		"GET /plugins/privileges?remote=evil.example/x":                                true,
		"GET /images/a/b/json":                                                         false,
		"GET /libpod/manifests/evil.example/x/json":                                    true,
		`POST /containers/create {"Image":"i"}`:                                        false,
		`POST /containers/create {"HostConfig":7}`:                                     true,
		`POST /v1.43/containers/create [{}]`:                                           true,
		`POST /containers/create {"Image":"i"`:                                         true,
		`POST /containers/create {"HostConfig":{"CgroupParent":"/own"}}`:               true,
		`POST /containers/create {"hostconfig":{"cgroupparent":"/own"}}`:               true,
		`POST /containers/create {"HostConfig":{"CgroupParent":"/p"}}`:                 false,
		`POST /containers/create {"HostConfig":{"VolumesFrom":["mine:ro"]}}`:           false,
		`POST /containers/create {"HostConfig":{"VolumesFrom":["mine","foreign:ro"]}}`: true,
		`POST /containers/create {"HostConfig":{"volumesfrom":["foreign"]}}`:           true,
		`POST /containers/create {"HostConfig":{"NetworkMode":"container:mine"}}`:      false,
		`POST /containers/create {"HostConfig":{"PidMode":"container:foreign"}}`:       true,
		`POST /containers/create {"HostConfig":{"LogConfig":{"Type":"syslog"}}}`:       true,
		`POST /containers/create {"HostConfig":{"LogConfig":{"Type":"json-file"}}}`:    false,
		`POST /containers/create {"HostConfig":{"Runtime":"io.containerd.kata.v2"}}`:   true,
		`POST /containers/create {"HostConfig":{"Runtime":"runc"}}`:                    false,
		`POST /containers/create {"HostConfig":{"VolumeDriver":"nfs"}}`:                true,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"volume"},{"Type":"volume",` +
			`"VolumeOptions":{"DriverConfig":{"Options":{"type":"nfs"}}}}]}}`: true,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"cluster"}]}}`:                  true,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"bind"},{"Type":"volume"}]}}`:   false,
		`POST /containers/create {"HostConfig":{"Cgroup":"container:foreign"}}`:                   true,
		`POST /containers/create {"HostConfig":{"PortBindings":{}}}`:                              false,
		`POST /containers/create {"HostConfig":{"PortBindings":{"80/tcp":[{"HostPort":"8"}]}}}`:   true,
		`POST /containers/create {"HostConfig":{"portbindings":{"80/tcp":[]},"PortBindings":{}}}`: true,
		`POST /containers/create {"HostConfig":{"PublishAllPorts":true}}`:                         true,
		`POST /containers/create {"HostConfig":{"PublishAllPorts":false}}`:                        false,
		`POST /containers/create {"HostConfig":{"DeviceRequests":[{"Driver":"nvidia"}]}}`:         true,
		`POST /containers/create {"HostConfig":{"Binds":["/etc:/etc:ro","/data"]}}`:               false,
		`POST /containers/create {"HostConfig":{"Binds":["nowhere:/x","alone:/y","ours:/z"]}}`:    false,
		`POST /containers/create {"HostConfig":{"Binds":["alone:/y","shared:/x:ro"]}}`:            true,
		`POST /containers/create {"HostConfig":{"Binds":["served:/x"]}}`:                          true,
		`POST /containers/create {"HostConfig":{"Binds":["driven:/x"]}}`:                          true,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"volume","Source":"ours"}]}}`:   false,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"bind","Source":"/etc"}]}}`:     false,
		`POST /containers/create {"HostConfig":{"Mounts":[{"Type":"volume","Source":"shared"}]}}`: true,
	} {
		t.Run(request, func(t *testing.T) {
			mu.Lock()
			told = nil
			mu.Unlock()
			line, body, _ := strings.Cut(request, " {")
			if body != "" {
				body = "{" + body
			} else if l, b, ok := strings.Cut(request, " ["); ok {
				line, body = l, "["+b
			}
			method, target, _ := strings.Cut(line, " ")
			req, err := http.NewRequest(method, "http://docker"+target, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, ","); got != line && want || got != "" && !want {
				t.Errorf("told of %q", got)
			}
		})
	}
	upgrade, err := http.NewRequest(http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		t.Fatal(err)
	}
	upgrade.Header.Set("Upgrade", "h2c")
	told = nil
	res, err := client.Do(upgrade)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	mu.Lock()
	if got := strings.Join(told, ","); got != "GET /_ping" {
		t.Errorf("of an upgrade to another protocol told: %q", got)
	}
	mu.Unlock()
	for _, target := range []string{
		"//containers/create", "/v1.43//containers/create", "/containers/../build",
		"/containers/x/./start", "/a/..", "/..",
	} {
		req := &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "docker", Path: target}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: answered with %s", target, res.Status)
		}
	}
}

// TestRelayEnds: when a client disconnects, the daemon learns it, and stops its work for the client. When the daemon
// disconnects, so does the client's connection. Nothing of either is left.
func TestRelayEnds(t *testing.T) {
	began, gone := make(chan struct{}, 4), make(chan struct{}, 4)
	daemon := filepath.Join(t.TempDir(), "d")
	l, err := net.Listen("unix", daemon)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
	})}
	go s.Serve(l)
	defer s.Close()
	socket := relayed(t, New(Docker, daemon), "/p", Watch{})
	ask := func() net.Conn {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "POST /build HTTP/1.1\r\nHost: /var/run/docker.sock\r\nContent-Length: 2\r\n\r\nhi")
		<-began
		return c
	}
	within := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal(what)
		}
	}
	ask().Close()
	within("the daemon does not learn that its client has gone", gone)
	c := ask()
	defer c.Close()
	s.Close()
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, c); close(ended) }()
	within("the client does not learn that the daemon has gone", ended)
}

// TestWithCgroupParent: only a container without a cgroup parent gets one; everything else is unchanged.
func TestWithCgroupParent(t *testing.T) {
	for body, want := range map[string]string{
		`{"Image":"i"}`:       `{"HostConfig":{"CgroupParent":"/p"},"Image":"i"}`,
		`{"HostConfig":null}`: `{"HostConfig":{"CgroupParent":"/p"}}`,
		`{"HostConfig":{"CgroupParent":"","Memory":1e3}}`:   `{"HostConfig":{"CgroupParent":"/p","Memory":1e3}}`,
		`{"HostConfig":{"CgroupParent":"/own","Memory":1}}`: `{"HostConfig":{"CgroupParent":"/own","Memory":1}}`,
		`{"HostConfig":7}`:                       `{"HostConfig":7}`,
		`{"Image":"i`:                            `{"Image":"i`,
		`null`:                                   `null`,
		`{"hostconfig":{"cgroupPARENT":""}}`:     `{"HostConfig":{"CgroupParent":"/p"}}`,
		`{"hostconfig":{"cgroupPARENT":"/own"}}`: `{"hostconfig":{"cgroupPARENT":"/own"}}`,
		`{"HoſtConfig":{"CgroupParent":"/own"}}`: `{"HoſtConfig":{"CgroupParent":"/own"}}`,
		`{"Image":"i"} and more`:                 `{"HostConfig":{"CgroupParent":"/p"},"Image":"i"}`,
		`[{"Image":"i"}]`:                        `[{"Image":"i"}]`,
		`{"HostConfig":{},"hostConfig":{}}`:      "",
		`{"HostConfig":{"CgroupParent":"/own","cgroupparent":""}}`: "",
		`{"Image":"i","Image":"j"}`:                                "",
		``:                                                         ``,
	} {
		got, err := withCgroupParent(json.RawMessage(body), "/p")
		if string(got) != want || (err == nil) != (want != "" || body == "") {
			t.Errorf("%s: %s, %v, want %s", body, got, err, want)
		}
	}
}
