package layer

import (
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// A baseline check, the agent, which moves into the baseline's cgroup, and the
// final check.
func TestChecksAreToldFromTheAgent(t *testing.T) {
	checks := &Checks{}
	checks.Begin(70, Check{Name: "tests_pass", Baseline: true}, 0)
	checks.End(70, at(20))
	checks.Begin(90, Check{Name: "tests_pass"}, 0)
	checks.Begin(0, Check{Name: "nowhere"}, 0)

	listed := surface.New("run_1", "")
	b, lines := collect(t, Options{Checks: checks, Surface: listed})
	in := func(cgroup uint64, ev ...any) {
		t.Helper()
		for _, e := range ev {
			switch ev := e.(type) {
			case forked:
				f := forkEvent(ev.t, ev.parent, ev.child)
				f.Child.CgroupID, f.CgroupID = cgroup, cgroup
				push(t, b, f)
			case opened:
				o := openEvent(ev.t, ev.pid, ev.path, 0, 0)
				o.Task.CgroupID = cgroup
				push(t, b, o)
			}
		}
	}
	in(70, forked{1, 1, 10}, forked{2, 10, 11}, opened{3, 11, "/baseline"})
	in(80, forked{30, 1, 20}, opened{31, 20, "/agent"})
	in(70, forked{32, 20, 21}, opened{33, 21, "/agent-hiding"}, // cloned into the baseline's cgroup
		opened{34, 25, "/agent-joining"}, // unseen before, but the check is over
		forked{35, 1, 26}, opened{36, 26, "/late"})
	in(90, forked{40, 1, 30}, opened{41, 30, "/final"}, opened{42, 31, "/final-joined"})
	in(99, forked{43, 30, 32}, opened{44, 32, "/final-elsewhere"}) // a cgroup that the check made
	ex := execEvent(45, 32, "/bin/true", "true")
	push(t, b, ex)
	b.Close()

	want := map[string]string{
		"/baseline": "check", "/agent": "agent", "/agent-hiding": "agent", "/agent-joining": "agent", "/late": "agent",
		"/final": "check", "/final-joined": "check", "/final-elsewhere": "check",
	}
	for _, e := range *lines {
		if w, ok := want[e.Value]; ok {
			if e.Class.String() != w {
				t.Errorf("%s is of class %s, want %s", e.Value, e.Class, w)
			}
			delete(want, e.Value)
		}
		begins := e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin
		if named := e.Check == "tests_pass"; named != (begins && e.Class == schema.ClassCheck) {
			t.Errorf("check %q on %s of class %s", e.Check, e.Kind, e.Class)
		}
		if e.Baseline != (e.Check != "" && e.TNS < 20) {
			t.Errorf("%s at %d: baseline %v", e.Kind, e.TNS, e.Baseline)
		}
	}
	if len(want) > 0 {
		t.Errorf("not seen: %v", want)
	}
	var out strings.Builder
	if _, err := listed.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); strings.Contains(s, "final") || strings.Contains(s, "baseline") ||
		!strings.Contains(s, "/agent-hiding") || strings.Contains(s, "/bin/true") {
		t.Errorf("surface %s", s)
	}
	// Four forks, five opens or so: everything of the checks, and nothing else.
	if s := b.Stats(); s.CheckForks != 4 || listed.LeftOut()["check"] != s.ByClass[schema.ClassCheck] ||
		s.ByClass[schema.ClassCheck] != 10 {
		t.Errorf("%d forks of checks, %v left out, %v by class", s.CheckForks, listed.LeftOut(), s.ByClass)
	}
}

type forked struct {
	t             uint64
	parent, child uint32
}

type opened struct {
	t    uint64
	pid  uint32
	path string
}

// What an engine moves into a container of the run belongs to the check that ran at that time, whenever the line is
// made, and to none if it was moved before or after.
func TestContainersBelongToTheCheckThatRan(t *testing.T) {
	checks := &Checks{}
	checks.Begin(70, Check{Name: "first"}, at(10))
	checks.End(70, at(20))
	checks.Begin(80, Check{Name: "second"}, at(30))
	for moved, want := range map[uint64]string{5: "", 10: "first", 20: "first", 25: "", 40: "second"} {
		got := ""
		if c := checks.during(at(moved)); c != nil {
			got = c.Name
		}
		if got != want {
			t.Errorf("at %d it is %q, want %q", moved, got, want)
		}
	}
}
