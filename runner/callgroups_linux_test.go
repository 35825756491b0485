package runner

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
)

// listen starts a gateway and returns the path of its socket.
func listen(t *testing.T, c gateway.Config) string {
	t.Helper()
	c.Run = &gateway.Recording{RunID: "call_test", Recorder: newMemory()}
	c.Now = func() time.Duration { return 0 }
	g, err := gateway.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.WithoutCancel(t.Context())) })
	socket, err := g.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	return socket
}

// TestOnlyTheRunsProcessesGetCgroups: no process outside the run is moved, whatever it sends.
func TestOnlyTheRunsProcessesGetCgroups(t *testing.T) {
	host := cgroup.Probe()
	if m := host.Mode(); m != cgroup.Unified && m != cgroup.Hybrid {
		t.Skipf("no writable cgroup2: the host's mode is %s", m)
	}
	session, err := host.NewSession(fmt.Sprintf("call-test-%d", os.Getpid()), cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Remove() })
	socket := listen(t, gateway.Config{Join: newCallGroups(session.Agent().Nest, binding.New(binding.Options{})).join})
	before := cgroup2(t)
	if err := JoinCall(socket, "x"); err == nil || !strings.Contains(err.Error(), "not a process of this run") {
		t.Errorf("joined from outside: %v", err)
	}
	for _, params := range []string{`{}`, `[]`, `{"tool_call_id":7}`, `{"tool_call_id":"a","pid":1}`,
		`{"tool_call_id":"` + strings.Repeat("x", 200) + `"}`, `{"tool_call_id":"a\nb"}`} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"calls.join","params":%s}`+"\n", params)
		reply, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(reply, `"error"`) {
			t.Errorf("%.40q was answered with %s, %v", params, reply, err)
		}
		conn.Close()
	}
	if after := cgroup2(t); before != after {
		t.Errorf("our cgroup was %s and is %s", before, after)
	}
	if left, err := filepath.Glob(session.Agent().Path() + "/tool-*"); err != nil || len(left) > 0 {
		t.Errorf("cgroups %v are left of refused calls", left)
	}
}

// cgroup2 is this process's cgroup2 path. Its cgroups of v1 hierarchies change while a launcher runs.
func cgroup2(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, own, _ := strings.Cut("\n"+string(all), "\n0::")
	return own
}

// TestJoinCallWaitsForAPlace: a call joins its cgroup even if all places are taken for a moment.
func TestJoinCallWaitsForAPlace(t *testing.T) {
	socket := listen(t, gateway.Config{
		Limits: gateway.Limits{ConnLimits: gateway.ConnLimits{Connections: 1}},
		Join:   func(_ *net.UnixConn, id string) error { return fmt.Errorf("got %s", id) },
	})
	other, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(other, `{"jsonrpc":"2.0","id":1,"method":"runs.list"}`)
	if _, err := bufio.NewReader(other).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*joinAgain, func() { other.Close() })
	if err := JoinCall(socket, "x"); err == nil || err.Error() != "got x" {
		t.Errorf("joined with %v", err)
	}
}
