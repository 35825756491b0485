package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestLocalPorts connects from outside to a server inside, by a port that the policy names and by one that it does
// not.
func TestLocalPorts(t *testing.T) {
	for _, w := range everybody[:2] {
		t.Run(w.name, func(t *testing.T) {
			w.can(t)
			named, other := freePort(t), freePort(t)
			j := shell(t, fmt.Sprintf(`exec /usr/bin/python3 -c '
import socket, threading
def serve(s):
    while True:
        c, _ = s.accept()
        said = c.recv(100)
        c.sendall(b"inside " + said)
        c.close()
        if said == b"end": open("ended", "w").close()
for port in (%d, %d):
    threading.Thread(target=serve, args=(socket.create_server(("127.0.0.1", port)),), daemon=True).start()
import os, time
while not os.path.exists("ended"): time.sleep(0.01)'`, named, other))
			j.Settings.Network = &sandboxfile.Network{AllowLocalPorts: []int{named}}
			done := make(chan *outcome, 1)
			go func() { done <- w.run(t, j) }()
			if got := ask(t, named, "hello"); got != "inside hello" {
				t.Errorf("the named port answers %q", got)
			}
			if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", other)); err == nil {
				c.Close()
				t.Error("a port that the policy does not name can be reached")
			}
			ask(t, named, "end")
			if o := <-done; o.Err != "" || o.Code != 0 {
				t.Errorf("%+v\n%s", o, o.out)
			}
			if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", named)); err == nil {
				t.Error("the port is open after the run")
			}
		})
	}
}

// freePort is a port on which nothing was listening a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// ask sends something to a port as soon as something answers there.
func ask(t *testing.T, port int, what string) string {
	t.Helper()
	var last error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		_, err = io.WriteString(c, what)
		answer, rerr := io.ReadAll(c)
		c.Close()
		if last = errors.Join(err, rerr); last == nil && len(answer) > 0 {
			return string(answer)
		}
	}
	t.Fatalf("nobody answers on port %d: %v", port, last)
	return ""
}

// TestUnixSockets connects to sockets that the policy names, and to their neighbours.
func TestUnixSockets(t *testing.T) {
	dirs := []string{scratch(t)}
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("/run", "sandbox-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir) // /run is the run's own
	}
	for _, dir := range dirs {
		for _, name := range []string{"named", "other"} {
			path := filepath.Join(dir, name)
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range everybody[:2] {
			t.Run(w.name+" in "+strings.Split(dir, "/")[1], func(t *testing.T) {
				j := shell(t, fmt.Sprintf(`"$ATTACK" unix %[1]s/named && ! "$ATTACK" unix %[1]s/other`, dir))
				j.Env = []string{"ATTACK=" + attack(t, scratch(t))}
				j.Settings.Network = &sandboxfile.Network{AllowUnixSockets: []string{dir + "/named"}}
				if o := w.run(t, j); o.Err != "" || o.Code != 0 {
					t.Errorf("%+v\n%s", o, o.out)
				}
			})
		}
	}
}
