//go:build linux && amd64

package truthtest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func TestPidReuse(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, helper, "pid-reuse")
	r.claims(t)
	r.lives(t, dir)
}

// lives asserts what each process did that had the pid which pid-reuse uses again.
func (r *recording) lives(t *testing.T, dir string) {
	t.Helper()
	var pid uint32
	if _, err := fmt.Sscan(r.out, &pid); err != nil {
		t.Fatalf("%q: %v", r.out, err)
	}
	// A life is all that one instance did.
	lives := map[uint64]string{}
	var order []uint64
	for i := range r.events {
		e := &r.events[i]
		if e.PID != pid {
			continue
		}
		switch e.Kind {
		case schema.KindFork:
			if lives[e.ExecID] != "" {
				t.Errorf("exec_id %d was given twice", e.ExecID)
			}
			order = append(order, e.ExecID)
			lives[e.ExecID] = "fork"
		case schema.KindExit:
			lives[e.ExecID] += fmt.Sprint(", exit ", e.WaitStatus>>8)
		default:
			lives[e.ExecID] += ", " + say(e, dir)
		}
	}
	want := []string{"fork, exit 0"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("fork, openat W/life-%d, exit %d", i, i))
	}
	var got []string
	for _, id := range order {
		got = append(got, lives[id])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestExecStorm(t *testing.T) {
	need(t)
	const chain, spawned = 300, 400
	dir := t.TempDir()
	r := record(t, dir, []string{"NASTY=" + helper}, "/bin/sh", "-c", fmt.Sprintf(`
"$NASTY" exec-chain %d
seq %d | xargs -P 4 -n 1 /bin/true`, chain, spawned))
	r.claims(t)
	var left, trues int
	previous := map[uint32]uint64{} // instance of a pid
	for i := range r.events {
		e := &r.events[i]
		if e.Kind == schema.KindFork {
			previous[e.PID] = e.ExecID
		}
		if e.Kind != schema.KindExec {
			continue
		}
		if e.ParentExecID != previous[e.PID] {
			t.Errorf("%q replaces instance %d, want %d", e.Argv, e.ParentExecID, previous[e.PID])
		}
		previous[e.PID] = e.ExecID
		switch e.Value {
		case helper:
			if want := fmt.Sprint(chain - left); e.Argv[2] != want {
				t.Fatalf("exec %d of the chain has %q", left, e.Argv)
			}
			left++
		case "/usr/bin/true":
			trues++
		}
	}
	if left != chain+1 || trues != spawned {
		t.Errorf("%d execs in the chain and %d of true, want %d and %d", left, trues, chain+1, spawned)
	}
	if k := r.health.Kernel; k.Forks != k.Exits {
		t.Errorf("%d forks, %d exits", k.Forks, k.Exits)
	}
}

func TestLeaderGoesFirst(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, helper, "leader-exit")
	r.claims(t)
	var child uint32
	var got []string
	for i := range r.events {
		e := &r.events[i]
		if e.Kind == schema.KindFork {
			child = e.PID
		}
		if e.PID != child || e.Class != schema.ClassAgent || e.Kind == schema.KindExec {
			continue
		}
		s := say(e, dir)
		if e.Kind == schema.KindExit {
			s = fmt.Sprint("exit ", e.WaitStatus>>8)
		}
		if e.TID != e.PID {
			s += " by a thread"
		}
		got = append(got, s)
	}
	// The first fork is the command's own: only the second child is left in got
	// from its fork on.
	want := []string{"fork ", "thread  by a thread", "openat W/after-leader by a thread", "exit 7 by a thread"}
	if d := cmp.Diff(want, got[max(0, len(got)-len(want)):]); d != "" {
		t.Error(d)
	}
}

func TestTwoRunsAtOnceNeverMix(t *testing.T) {
	need(t)
	type run struct {
		dir, bundle string
		wait        func() error
	}
	var runs []run
	for i := range 2 {
		dir := t.TempDir()
		c, bundle := prepare(t, dir, nil, "/bin/sh", "-c", fmt.Sprintf(
			`mkdir own; for i in $(seq 150); do echo > own/%d-$i; cat own/%d-$i > /dev/null; done; rm -r own`, i, i))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run{dir, bundle, c.Wait})
	}
	var recs []recording
	for _, r := range runs {
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		rec := readBundle(t, r.bundle)
		rec.claims(t)
		recs = append(recs, rec)
	}
	pids := map[uint32]int{}
	for i, r := range recs {
		for n := range 150 {
			name := fmt.Sprintf("W/own/%d-%d", i, n+1)
			if opens, unlinks := r.sum(runs[i].dir, "openat "+name), r.sum(runs[i].dir, "unlink "+name); opens != 2 ||
				unlinks != 1 {
				t.Errorf("run %d: %s was opened %d times and removed %d times", i, name, opens, unlinks)
			}
		}
		for _, e := range r.events {
			if e.Kind == schema.KindFork {
				pids[e.PID]++
			}
			if d := runs[1-i].dir; len(e.Value) >= len(d) && e.Value[:len(d)] == d {
				t.Errorf("run %d has an event of the other: %s", i, say(&e, d))
			}
		}
		if c := r.health.CgroupCorrelation; c != schema.Clean {
			t.Errorf("run %d: correlation is %s", i, c)
		}
	}
	for pid, n := range pids {
		if n > 1 {
			t.Errorf("both runs have process %d", pid)
		}
	}
}
