// Package enginetest gives a test a container engine of its own: a Docker daemon, or
// Podman, whose sockets, images and containers are in a directory of the test. Images are
// made of busybox, so no registry is needed. Tests that use it need root and the Debian
// packages docker.io, podman, uidmap, runc and busybox-static. With -short, they are skipped.
package enginetest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// Image is the image that every engine has. It holds busybox's commands and an /etc/passwd
// with root and agent (1000).
const Image = "assay-test"

// Network is a network that Podman has, with a loopback interface alone. podman-compose puts
// every service into a network.
const Network = "loopback"

// Engine is one engine.
type Engine struct {
	// Program is its client: docker or podman.
	Program string
	// Env has the variables with which the client finds this engine.
	Env []string
	// Socket is the socket of the HTTP API. Podman's exists only after Serve.
	Socket string
	// User is whom Podman serves; empty for root. Delegated is a cgroup parent that the user
	// may write.
	User, Delegated string

	t       testing.TB
	as      *syscall.SysProcAttr // who the client is; nil for root
	home    string               // of the user
	daemon  *exec.Cmd
	restart func(syscall.Signal)
}

// Restart ends the Docker daemon, as systemd does, and starts it again. Its
// containers end with it.
func (e *Engine) Restart() { e.t.Helper(); e.restart(syscall.SIGTERM) }

// Crash kills the Docker daemon, if it runs, and starts it again. Its containers end too,
// unless the daemon was started with --live-restore.
func (e *Engine) Crash() { e.t.Helper(); e.restart(syscall.SIGKILL) }

// Daemon is the process id of the Docker daemon.
func (e *Engine) Daemon() int { return e.daemon.Process.Pid }

// Docker starts a Docker daemon with the cgroupfs driver and without networks:
// containers have the network none or host. The test is skipped where there is
// no Docker or no root. The daemon ends with the test, with its containers.
func Docker(t testing.TB) *Engine { return DockerWith(t) }

// DockerWith is Docker with more flags for the daemon.
func DockerWith(t testing.TB, flags ...string) *Engine {
	t.Helper()
	need(t, "dockerd", "docker", "containerd", "runc")
	dir := shortDir(t)
	e := &Engine{Program: "docker", Socket: filepath.Join(dir, "docker.sock"), t: t}
	e.Env = []string{"DOCKER_HOST=unix://" + e.Socket, "DOCKER_CONFIG=" + filepath.Join(dir, "config")}
	start := func() *exec.Cmd {
		log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		daemon := exec.Command("dockerd",
			append([]string{"--iptables=false", "--ip6tables=false", "--bridge=none", "--host=unix://" + e.Socket,
				"--data-root=" + filepath.Join(dir, "data"), "--exec-root=" + filepath.Join(dir, "exec"),
				"--pidfile=" + filepath.Join(dir, "pid")}, flags...)...)
		daemon.Stdout, daemon.Stderr = log, log
		daemon.Env = append(os.Environ(), "TMPDIR="+dir) // containerd writes its stacks there when it is slow
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		return daemon
	}
	e.daemon = start()
	answers := func() {
		for deadline := time.Now().Add(time.Minute); e.command("version").Run() != nil; time.Sleep(
			50 * time.Millisecond) {
			if time.Now().After(deadline) {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Fatalf("dockerd does not answer:\n%s", log)
			}
		}
	}
	e.restart = func(signal syscall.Signal) {
		containerd, _ := os.ReadFile(filepath.Join(dir, "exec/containerd/containerd.pid"))
		e.daemon.Process.Signal(signal)
		e.daemon.Wait()
		// else the next daemon would wait for its socket
		for pid, _ := strconv.Atoi(string(containerd)); pid > 0 && syscall.Kill(pid, 0) == nil; {
			time.Sleep(10 * time.Millisecond)
		}
		e.daemon = start()
		answers()
	}
	t.Cleanup(func() {
		if ids := strings.Fields(e.try("ps", "--all", "--quiet")); len(ids) > 0 {
			e.try(append([]string{"rm", "--force"}, ids...)...)
		}
		e.daemon.Process.Signal(os.Interrupt) // the daemon ends its containerd itself
		e.daemon.Wait()
		removeGroups("docker")
	})
	answers()
	e.Import(Image, nil)
	return e
}

// Podman prepares a Podman with storage of its own, the cgroupfs driver, limits that a
// process without CAP_SYS_RESOURCE may set, and runc. (crun refuses hosts whose cgroup2 has
// a controller beside version 1.) The test is skipped without Podman or without root.
func Podman(t testing.TB) *Engine {
	t.Helper()
	need(t, "podman", "runc")
	dir := shortDir(t)
	e := &Engine{Program: "podman", Env: configure(t, dir, ""), t: t}
	t.Cleanup(func() {
		e.try("rm", "--all", "--force", "--time", "0")
		removeGroups("libpod_parent")
	})
	e.Import(Image, nil)
	return e
}

// Serve starts Podman's HTTP API on a socket of its own, until the test ends.
func (e *Engine) Serve() {
	e.t.Helper()
	e.Socket = filepath.Join(shortDir(e.t), "podman.sock")
	if e.User != "" {
		e.Socket = fmt.Sprintf("/run/user/%d/podman/podman.sock", e.as.Credential.Uid)
		if err := os.Mkdir(filepath.Dir(e.Socket), 0o700); err != nil {
			e.t.Fatal(err)
		}
		if err := os.Chown(filepath.Dir(e.Socket), int(e.as.Credential.Uid), int(e.as.Credential.Gid)); err != nil {
			e.t.Fatal(err)
		}
	}
	service := e.command("system", "service", "--time=0", "unix://"+e.Socket)
	if err := service.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		service.Process.Signal(os.Interrupt)
		service.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(e.Socket); err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatal("podman system service does not make its socket")
		}
	}
}

// Command is the client with these arguments. For Podman, run and create get no network by
// default. For Docker, the caller has to pass --network.
func (e *Engine) Command(args ...string) *exec.Cmd { return e.command(args...) }

func (e *Engine) command(args ...string) *exec.Cmd { return e.Execute(e.Program, args...) }

// Execute is a program that the engine's user starts.
func (e *Engine) Execute(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = append(os.Environ(), e.Env...), e.home, e.as
	return cmd
}

// Run runs the client and returns its standard output. An error ends the test.
func (e *Engine) Run(args ...string) string {
	e.t.Helper()
	cmd := e.command(args...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("%s %q: %v\n%s", e.Program, args, err, errors.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func (e *Engine) try(args ...string) string {
	out, _ := e.command(args...).Output()
	return string(out)
}

// Import makes an image of busybox and of these files: path in the image to path on the
// host. A program must be static.
func (e *Engine) Import(name string, files map[string]string) {
	e.t.Helper()
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			e.t.Fatal(err)
		}
		w.Write(data)
	}
	for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "root", "tmp", "work"} {
		mode := int64(0o755)
		if dir == "tmp" || dir == "work" {
			mode = 0o1777
		}
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644},
		[]byte("root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/work:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nagent:x:1000:\n"))
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			e.t.Fatal(err)
		}
		return data
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		e.t.Fatal(err)
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, read(busybox))
	commands, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, c := range strings.Fields(string(commands)) {
		if c != "busybox" {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + c, Linkname: "busybox"}, nil)
		}
	}
	for path, from := range files {
		add(tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755}, read(from))
	}
	if err := w.Close(); err != nil {
		e.t.Fatal(err)
	}
	cmd := e.command("import", "--change", "ENV PATH=/bin", "-", name)
	cmd.Stdin = &image
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("%s import: %v\n%s", e.Program, err, out)
	}
}

// RemoveGroups ends the engine's containers. On every hierarchy it removes the directories
// that the engine made below this cgroup parent.
func (e *Engine) RemoveGroups(parent string) {
	if ids := strings.Fields(e.try("ps", "--all", "--quiet")); len(ids) > 0 {
		e.try(append([]string{"rm", "--force"}, ids...)...)
	}
	removeGroups(strings.Trim(parent, "/"))
}

func need(t testing.TB, programs ...string) {
	t.Helper()
	layertest.Host(t)
	if os.Getuid() != 0 {
		t.Skip("a container engine takes root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s: make deps installs it", p)
		}
	}
}
