//go:build linux && amd64

package truthtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// unified is where the cgroup2 hierarchy is mounted.
func unified() string {
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	return ""
}

// inGroup runs a script that knows its own cgroup as CG and the top one as TOP.
func inGroup(t *testing.T, dir, script string, env ...string) recording {
	t.Helper()
	top := unified()
	if top == "" {
		t.Skip("no cgroup2 hierarchy is mounted")
	}
	return record(t, dir, append(env, "TOP="+top), "/bin/sh", "-ec",
		"CG=$TOP$(sed -n 's/^0:://p' /proc/self/cgroup); echo $CG\n"+script)
}

// about are the lines of a run's story that have text in them.
func about(r recording, dir, text string) (lines []string) {
	for _, s := range r.story(dir) {
		if strings.Contains(s, text) {
			lines = append(lines, s)
		}
	}
	return lines
}

func TestNestedCgroups(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := inGroup(t, dir, `mkdir -p $CG/inner/most
(echo 0 > $CG/inner/most/cgroup.procs; mkdir inside-1; (mkdir inside-2); echo 0 > $CG/cgroup.procs; mkdir back)
mkdir never-left`)
	r.claims(t)
	if c := r.health.CgroupCorrelation; c != schema.Clean {
		t.Errorf("correlation is %s", c)
	}
	for _, name := range []string{"inside-1", "inside-2", "back", "never-left"} {
		if n := r.sum(dir, "mkdir W/"+name); n != 1 {
			t.Errorf("%s was made %d times in the layer", name, n)
		}
	}
	groups := map[uint64]bool{}
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindExec {
			groups[e.CgroupID] = true
		}
	}
	if len(groups) != 2 {
		t.Errorf("execs in %d cgroups, want 2", len(groups))
	}
	if group := strings.TrimSpace(r.out); len(group) < 20 || exists(group) {
		t.Errorf("%q is left over", group)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const movedTasks = "what tasks do before they are moved into the session, and after they are moved out"

func TestLeavingIsSeen(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := inGroup(t, dir, `mkdir before; (echo 0 > $TOP/cgroup.procs; mkdir unseen); mkdir after`)
	if !exists(dir + "/unseen") {
		t.Fatal("it never left")
	}
	if c := r.health.CgroupCorrelation; c != schema.Partial {
		t.Errorf("correlation is %s", c)
	}
	if got := about(r, dir, "leave"); len(got) != 1 || got[0] != "leave /" {
		t.Errorf("%q, want one leave to the top", got)
	}
	if got := about(r, dir, "unseen"); len(got) != 0 {
		t.Errorf("%q was seen", got)
	}
	if r.sum(dir, "mkdir W/before") != 1 || r.sum(dir, "mkdir W/after") != 1 {
		t.Error("what happened in the session is missing")
	}
	if !blindSpot(t, r, movedTasks) {
		t.Error("the blind spot was not exercised")
	}
	r.claims(t, "left_cgroup", "processes_alive")
}

func TestJoiningLate(t *testing.T) {
	need(t)
	dir := t.TempDir()
	for _, name := range []string{"go", "back"} {
		if err := unix.Mkfifo(dir+"/"+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	outsider := exec.CommandContext(t.Context(), "/bin/sh", "-ec",
		`mkdir early; read x < go; mkdir late; mkdir nope/late || true; echo > back`)
	outsider.Dir, outsider.Env, outsider.Stdout, outsider.Stderr = dir, environment(dir), &out, &out
	if err := outsider.Start(); err != nil {
		t.Fatal(err)
	}
	pid := outsider.Process.Pid
	r := inGroup(t, dir, `echo $OUTSIDER > $CG/cgroup.procs; echo > go; read x < back`, fmt.Sprintf("OUTSIDER=%d", pid))
	if err := outsider.Wait(); err != nil && !strings.Contains(err.Error(), "signal") {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	joined := false
	for i := range r.events {
		e := &r.events[i]
		if e.Kind == schema.KindJoin {
			if joined || int(e.PID) != pid {
				t.Errorf("a join of %d, want one of %d", e.PID, pid)
			}
			joined = true
		} else if int(e.PID) == pid && !joined {
			t.Errorf("before the join: %s", say(e, dir))
		}
	}
	if !joined {
		t.Error("nobody joined")
	}
	if r.sum(dir, "mkdir W/late") != 1 || r.sum(dir, "mkdir W/nope/late ENOENT") != 1 ||
		len(about(r, dir, "early")) != 0 {
		t.Errorf("late: %q, early: %q", about(r, dir, "late"), about(r, dir, "early"))
	}
	if !blindSpot(t, r, movedTasks) {
		t.Error("the blind spot was not exercised")
	}
	r.claims(t, "process_moved_in")
}
