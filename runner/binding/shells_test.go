package binding_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// newShells is a run whose command, pid 10, reports to an SDK's log.
func newShells() scene {
	s := scene{binding.New(binding.Options{SDK: true, Known: func(int64) bool { return true }})}
	s.exec(10, 1, "codex", "exec")
	return s
}

func (s scene) does(e schema.KernelEvent) *schema.KernelEvent {
	e.Class, e.HasResult = schema.ClassAgent, true
	s.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: e.Kind}}, &e)
	return &e
}

func (s scene) fork(parent, pid uint32, t int64) {
	s.does(schema.KernelEvent{Kind: schema.KindFork, PID: pid, PPID: parent, TNS: t})
}

func (s scene) exec(pid uint32, t int64, argv ...string) *schema.KernelEvent {
	return s.does(schema.KernelEvent{Kind: schema.KindExec, Value: "/bin/" + argv[0], PID: pid, Argv: argv, TNS: t})
}

func (s scene) exit(pid uint32, t int64) {
	s.does(schema.KernelEvent{Kind: schema.KindExit, PID: pid, TNS: t})
}

func (s scene) write(pid uint32, path string, t int64) *schema.KernelEvent {
	return s.does(schema.KernelEvent{Kind: schema.KindOpen, Value: path, Flags: 1, PID: pid, TNS: t})
}

// runs is the line of a call that names its command.
func (s scene) runs(id string, t int64, argv ...string) {
	s.SDK(&schema.SDKEvent{EventType: agentlog.ToolCallStarted, ToolCallID: id, Tool: "command_execution", Argv: argv,
		TNS: t}, agentlog.Arrival{After: t - 1, At: t})
}

// short is a command of Codex that runs from t to t+40, with a child that writes.
func (s scene) short(pid uint32, t int64, line, path string) {
	s.fork(10, pid, t-5)
	s.exec(pid, t, "bash", "-lc", line)
	s.fork(pid, pid+1, t+10)
	s.exec(pid+1, t+11, "touch", path)
	s.write(pid+1, path, t+20)
	s.exit(pid+1, t+30)
	s.exit(pid, t+40)
}

// written is what was written by each call; "" is none.
func written(r *schema.CorrelationReport) map[string]string {
	by := map[string]string{}
	for _, b := range r.Bindings {
		for _, w := range b.Effects.Written {
			by[w] += b.ToolCallID + fmt.Sprintf(" from %d", *b.TStartNS)
		}
	}
	for _, u := range r.ObservedNotReported {
		for _, w := range u.Effects.Written {
			by[w] += u.Code
		}
	}
	return by
}

func TestACommandIsItsCallsThoughTheLineComesLate(t *testing.T) {
	ls := []string{"bash", "-lc", "ls"}
	for _, c := range []struct {
		name string
		play func(s scene)
		want map[string]string
	}{
		{"a command that ended before", func(s scene) {
			s.short(20, 100, "ls", "/w/a")
			s.write(10, "/w/codex", 150)
			s.runs("1", 200, ls...)
			s.end("1", "command_execution", 200, 201)
		}, map[string]string{"/w/a": "1 from 100", "/w/codex": "outside"}},
		{"two equal commands in a row, whose lines come together", func(s scene) {
			s.short(20, 100, "ls", "/w/a")
			s.short(30, 160, "ls", "/w/b")
			s.runs("1", 220, ls...)
			s.end("1", "command_execution", 221, 222)
			s.runs("2", 230, ls...)
			s.end("2", "command_execution", 231, 232)
		}, map[string]string{"/w/a": "1 from 100", "/w/b": "2 from 160"}},
		{"a shell that becomes the one that is said", func(s scene) {
			for i := range 2 {
				pid, at := uint32(20+i), int64(100+50*i)
				s.fork(10, pid, at-5)
				s.exec(pid, at, "bash", "-c", ". snapshot; exec bash -c ls")
				s.write(pid, fmt.Sprint("/w/before", i), at+1)
				s.exec(pid, at+5, "bash", "-c", "ls")
				s.write(pid, fmt.Sprint("/w/", i), at+10)
				s.exit(pid, at+20)
			}
			s.runs("1", 200, ls...)
			s.end("1", "command_execution", 201, 202)
			s.runs("2", 210, ls...)
			s.end("2", "command_execution", 211, 212)
		}, map[string]string{"/w/before0": "1 from 100", "/w/0": "1 from 100", "/w/before1": "2 from 150",
			"/w/1": "2 from 150"}},
		{"two equal commands, of which one is not reported", func(s scene) {
			s.short(20, 100, "ls", "/w/a")
			s.runs("1", 160, ls...)
			s.end("1", "command_execution", 161, 162)
			s.short(30, 200, "ls", "/w/b")
		}, map[string]string{"/w/a": "1 from 100", "/w/b": "outside"}},
		{"a line that is read before its exec is seen", func(s scene) {
			s.runs("1", 200, ls...)
			s.end("1", "command_execution", 200, 201)
			s.short(20, 100, "ls", "/w/a")
		}, map[string]string{"/w/a": "1 from 100"}},
		{"a line that comes first", func(s scene) {
			s.runs("1", 90, ls...)
			s.short(20, 100, "ls", "/w/a")
			s.write(10, "/w/codex", 150)
			s.end("1", "command_execution", 200, 201)
		}, map[string]string{"/w/a": "1 from 90", "/w/codex": "outside"}},
		{"commands that run at one time", func(s scene) {
			s.fork(10, 40, 80)
			s.exec(40, 81, "bash", "-lc", "watch")
			s.runs("0", 90, "bash", "-lc", "watch")
			s.short(20, 100, "ls", "/w/a")
			s.write(40, "/w/0", 150)
			s.runs("1", 200, ls...)
			s.write(40, "/w/00", 210)
			s.end("1", "command_execution", 220, 221)
			s.end("0", "command_execution", 230, 231)
		}, map[string]string{"/w/a": "1 from 100", "/w/0": "0 from 81", "/w/00": "0 from 81"}},
		{"a shell of the same command in a command", func(s scene) {
			s.fork(10, 40, 80)
			s.exec(40, 81, "bash", "-lc", "bash -lc ls")
			s.fork(40, 20, 82)
			s.exec(20, 83, ls...)
			s.write(20, "/w/in", 84)
			s.runs("0", 90, "bash", "-lc", "bash -lc ls")
			s.end("0", "command_execution", 95, 96)
			s.short(50, 100, "ls", "/w/a")
			s.runs("1", 200, ls...)
			s.end("1", "command_execution", 201, 202)
		}, map[string]string{"/w/in": "0 from 81", "/w/a": "1 from 100"}},
		{"another command", func(s scene) {
			s.short(20, 100, "rm", "/w/a")
			s.runs("1", 200, ls...)
			s.end("1", "command_execution", 201, 202)
		}, map[string]string{"/w/a": "outside"}},
		{"a command of long ago", func(s scene) {
			s.short(20, 100, "ls", "/w/a")
			s.runs("1", 20e9, ls...)
			s.end("1", "command_execution", 20e9+1, 20e9+2)
		}, map[string]string{"/w/a": "outside"}},
		{"more actions than can wait", func(s scene) {
			s.fork(10, 20, 95)
			s.exec(20, 100, ls...)
			for i := range 25_000 {
				s.write(20, "/w/a", 101+int64(i))
			}
			s.write(20, "/w/last", 30_000)
			s.runs("1", 40_000, ls...)
			s.end("1", "command_execution", 40_001, 40_002)
		}, map[string]string{"/w/a": "1 from 100outside", "/w/last": "1 from 100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShells()
			c.play(s)
			if diff := cmp.Diff(c.want, written(s.report(binding.Facts{}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The exec that starts a call belongs to the call too.
func TestACallBeginsWithItsExec(t *testing.T) {
	s := newShells()
	s.short(20, 100, "ls", "/w/a")
	s.runs("1", 200, "bash", "-lc", "ls")
	s.end("1", "command_execution", 200, 201)
	r := s.report(binding.Facts{})
	if diff := cmp.Diff([]string{"bash -lc ls", "touch /w/a"}, r.Bindings[0].Effects.Commands); diff != "" {
		t.Error(diff)
	}
	if len(r.ObservedNotReported) != 0 {
		t.Errorf("%+v", r.ObservedNotReported)
	}
}

// Events of a command are bound at once if its call is known.
func TestACommandOfAKnownCallIsBoundAtOnce(t *testing.T) {
	s := newShells()
	s.fork(10, 20, 95)
	s.exec(20, 100, "bash", "-lc", "make")
	s.runs("1", 200, "bash", "-lc", "make")
	s.fork(20, 21, 210)
	if e := s.write(21, "/w/a", 220); e.ToolCallID != "1" || e.BoundBy != schema.BoundByWindow {
		t.Errorf("bound to %q by %q", e.ToolCallID, e.BoundBy)
	}
	if e := s.write(10, "/w/codex", 230); e.ToolCallID != "" {
		t.Errorf("what the agent does itself is bound to %q", e.ToolCallID)
	}
}

// The lines of a short command can be read before its events, and both of them at once: when the command ended is then
// known only as some time before that. Its own events are the call's nevertheless.
func TestAShortCommandIsItsCalls(t *testing.T) {
	s := newShells()
	s.runs("1", 200, "bash", "-lc", "make")
	s.end("1", "command_execution", 90, 200)
	s.short(20, 100, "make", "/w/a")
	s.write(20, "/w/late", 210)
	s.write(10, "/w/codex", 220)
	r := s.report(binding.Facts{})
	want := map[string]string{"/w/a": "1 from 100", "/w/late": "outside", "/w/codex": "outside"}
	if diff := cmp.Diff(want, written(r)); diff != "" {
		t.Error(diff)
	}
	if r.Events["edge"] != 0 {
		t.Errorf("%v", r.Events)
	}
}

// Waiting events are decided before there are too many calls to examine.
func TestWhatWaitsIsJudgedInTime(t *testing.T) {
	s := newShells()
	s.fork(10, 20, 95)
	s.exec(20, 100, "sh", "-c", "setup")
	s.write(20, "/w/a", 110)
	for i := range int64(300) {
		s.start(fmt.Sprint(i), "Bash", 20e9+10*i, 20e9+10*i+1)
		s.end(fmt.Sprint(i), "Bash", 20e9+10*i+5, 20e9+10*i+6)
	}
	if r := s.report(binding.Facts{}); r.Events["edge"] != 0 || r.Events["none"] == 0 {
		t.Errorf("%v", r.Events)
	}
}

// An agent that never names commands loses nothing.
func TestShellsOfOtherAgentsAreBoundByTime(t *testing.T) {
	s := newShells()
	s.start("1", "Bash", 89, 90)
	s.fork(10, 20, 95)
	s.exec(20, 100, "bash", "-c", "ls")
	if e := s.write(20, "/w/a", 120); e.ToolCallID != "1" {
		t.Errorf("bound to %q", e.ToolCallID)
	}
	s.end("1", "Bash", 150, 151)
	s.exec(20, 200, "bash", "-c", "ls")
	s.write(20, "/w/b", 210)
	r := s.report(binding.Facts{})
	if diff := cmp.Diff(map[string]string{"/w/a": "1 from 90", "/w/b": "outside"}, written(r)); diff != "" {
		t.Error(diff)
	}
	if n := r.Events["none"]; n != 3 {
		t.Errorf("%d events of no call: %v", n, r.Events)
	}
}
