//go:build linux

package cgroup_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
	_ "github.com/assay-run/assay-run/cgroup/reexec"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "role=") {
		os.Exit(play(strings.TrimPrefix(os.Args[1], "role="), os.Args[2:]))
	}
	os.Exit(leaktest.Of(m).Run())
}

func testID() string { return "test-" + strconv.Itoa(os.Getpid()) }

var sessions atomic.Int64

// newSession makes a session that the test's end removes.
func newSession(t testing.TB, l cgroup.Limits) *cgroup.Session {
	t.Helper()
	s, err := cgroup.Probe().NewSession(fmt.Sprintf("%s-%d", testID(), sessions.Add(1)), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
		if p := s.Path(); p != "" {
			if _, err := os.Stat(p); !os.IsNotExist(err) {
				t.Errorf("session directory %s is still there: %v", p, err)
			}
		}
	})
	return s
}

// role is a command that plays a role in this test binary.
func role(s *cgroup.Session, name string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{"role=" + name}, args...)...)
	cmd.Env = append(os.Environ(), cgroup.MarkerKey+"="+s.RunID())
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts a role in a group and reads the first line that it prints: it
// is where it should be by then. The test's end waits for it.
func start(t testing.TB, g *cgroup.Group, cmd *exec.Cmd) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	err = g.Start(cmd)
	w.Close()
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("%v printed no line: %v", cmd.Args, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// gone kills the group and fails unless it is empty soon.
func gone(t testing.TB, g *cgroup.Group) {
	t.Helper()
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	drained(t, g)
}

func drained(t testing.TB, g *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.Wait(ctx); err != nil {
		ps, _ := g.Procs()
		t.Errorf("group is not empty: %v: %v", err, ps)
	}
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
