package judge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/facts"
)

// declared judges the actions outside reported calls. The agent program may do some things by itself: what it does at
// its start, in its home directory, with its model's server, and with the paths and hosts of the rule.
//
// A command may begin before its call is reported. It belongs to the call if it, or a process that it started, did
// something during the call.
type declared struct {
	program      *agents.Program
	paths, hosts []string // globs
	calls        []schema.Binding
	place        agents.Place
	facts        *facts.Reader
	logs         []string // files to which the agent reports

	begun   bool // the command was executed
	actions []action
	beyond  int    // number of actions beyond maxActions
	guessed string // a file that is only assumed to be the agent program's, since the bundle does not name its home
	faked   bool   // a later line showed that the run had made a file that was taken for the agent program
	claimed bool   // a process other than the agent program changed a file under a name that may be wrong
}

// maxActions limits the actions that are kept until the end, when it is known to which calls processes belong.
const maxActions = 10_000

// actor is a process between two execs.
type actor struct {
	parent *actor
	own    bool // the agent program, or the command of the run
	helper bool // started by the agent program itself, or by another helper
	called bool // it did something during a call
}

type action struct {
	by   *actor
	key  string // without the process and the time
	what Evidence
	at   int64
}

// belongs reports whether the process or an ancestor worked for a call.
func (a *actor) belongs() bool {
	for ; a != nil && !a.own; a = a.parent {
		if a.called {
			return true
		}
	}
	return false
}

func declaredActions(m *maker, value jsontext.Value) (*rule, error) {
	var v struct {
		Agent string   `json:"agent"`
		Paths []string `json:"paths"`
		Hosts []string `json:"hosts"`
	}
	if err := m.decode(value, &v); err != nil {
		return nil, fmt.Errorf("its value must be true, or have the keys agent, paths and hosts: %w", err)
	}
	d := &declared{}
	if v.Agent == "" && v.Paths == nil && v.Hosts == nil {
		return nil, errors.New("its value must be true, or have the keys agent, paths and hosts")
	}
	if v.Agent != "" {
		ok := false
		if d.program, ok = agents.Of(v.Agent); !ok {
			return nil, fmt.Errorf("agent %q is not known; the agents are %s", v.Agent,
				strings.Join(agents.Names(), ", "))
		}
	}
	if d.program == nil { // an unknown program: it does nothing by itself
		d.program = &agents.Program{}
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{v.Paths, &d.paths}, {v.Hosts, &d.hosts}} {
		for _, g := range list.from {
			if err := config.CheckGlob(g); err != nil {
				return nil, err
			}
		}
		*list.to = list.from
	}
	return &rule{
		processes: true,
		begin: func(s *subject) {
			run := &s.Docs.Run
			*d = declared{program: d.program, paths: d.paths, hosts: d.hosts, calls: s.Docs.Correlation.Bindings,
				facts: s.facts, place: agents.Place{Workdir: run.Workdir, Homes: run.Homes},
				logs: []string{run.SDKEventLog, run.PolicyDecisionLog}}
		},
		event: func(l *facts.Line) bool { d.event(l); return false },
		amended: func(a *facts.Amendment) bool {
			p, _ := a.By.Note.(*actor)
			d.faked = d.faked || p != nil && p.own
			return false
		},
		check: func(_ context.Context, s *subject) (Verdict, error) { return d.judge(s), nil },
	}, nil
}

func (d *declared) judge(s *subject) Verdict {
	v := Verdict{State: Pass}
	seen := map[string]bool{}
	for _, a := range d.actions {
		if !a.by.belongs() && !seen[a.key] {
			seen[a.key] = true
			a.what.Text += d.nearest(a.at)
			v.found(a.what)
		}
	}
	if v.State == Fail {
		v.Message = fmt.Sprintf("%s neither reported nor the agent program's own",
			schema.Count(uint64(len(v.Evidence)+v.More+d.beyond), "action is", "actions are"))
		return v
	}
	gaps := s.gaps(view.Programs, view.Files, view.Hosts, view.Calls)
	if !d.claimed { // only the agent program, which is trusted to report, can have forged names
		gaps = slices.DeleteFunc(gaps, func(g view.Gap) bool { return g.Spot == "doubtful_changes" })
	}
	if d.guessed != "" {
		gaps = append(gaps, view.Gap{
			Text: fmt.Sprintf("the bundle does not say where the agent's home is, so that %s may be another's",
				schema.OneLine(d.guessed)),
			Remedy: "name the agent's own directories with paths",
		})
	}
	if d.faked {
		gaps = append(gaps, view.Gap{Text: "the run made a program that was taken for the agent's own",
			Remedy: "look at it with assay-run show"})
	}
	if d.beyond > 0 {
		gaps = append(gaps, view.Gap{Text: fmt.Sprintf("%d actions before they could be told from those of a "+
			"call are not kept", d.beyond), Remedy: "look at them with assay-run show"})
	}
	if len(gaps) > 0 {
		v.unknown(gaps...)
		return v
	}
	v.Message = "everything that was done was reported, or is the agent program's own"
	return v
}

// nearest names the call that is nearest in time.
func (d *declared) nearest(at int64) string {
	best, text := int64(-1), ""
	for i := range d.calls {
		c := &d.calls[i]
		for _, edge := range []struct {
			t    *int64
			word string
		}{{c.TStartNS, "before"}, {c.TEndNS, "after"}} {
			if edge.t == nil {
				continue
			}
			gap := at - *edge.t
			if edge.word == "before" {
				gap = -gap
			}
			if gap >= 0 && (best < 0 || gap < best) {
				best, text = gap, fmt.Sprintf(", %s %s call %s", time.Duration(gap).Round(time.Millisecond), edge.word,
					strings.TrimSpace(c.Tool+" "+c.ToolCallID))
			}
		}
	}
	return text
}

func (d *declared) event(l *facts.Line) {
	k, p := l.Event, d.process(l)
	if p != nil && k.ToolCallID != "" {
		p.called = true
	}
	if k.ToolCallID != "" || k.Class != schema.ClassAgent || k.Failed() && k.Kind != schema.KindConnect ||
		d.within(k.TNS) {
		return
	}
	i := -1 // in l.Acts, which a failed line does not have
	for name, how := range k.Touches() {
		i++
		switch {
		case how == schema.AccessRun:
			if p == nil || !p.own && !p.helper {
				d.add(p, k, "ran", view.Cut(view.QuoteArgs(k.Argv), 200))
			}
		case how == schema.AccessConnect:
			if !d.allowedHost(name, k, p != nil && (p.own || p.helper)) {
				d.add(p, k, "contacted", view.What(k))
			}
		case how&schema.AccessModify != 0:
			if d.leavesNothing(name, l) {
				continue
			}
			if l.Doubtful() && (p == nil || !p.own) {
				d.claimed = true
			}
			first := ""
			if f := l.Acts[i].File; how&(schema.AccessWrite|schema.AccessChange) != 0 && f != nil && f.First != name {
				first = d.facts.Linked(name)
			}
			switch {
			case !d.allowedFile(name):
				d.add(p, k, "wrote", name)
			case first != "" && !d.allowedFile(first):
				d.add(p, k, "wrote", first)
			}
		}
	}
}

// allowedFile reports whether the rule allows that a file is written.
func (d *declared) allowedFile(name string) bool { return matches(d.paths, name) || d.owns(name) }

// owns reports whether a file belongs to the agent program, and notes if that is only assumed.
func (d *declared) owns(file string) bool {
	if !d.program.Writes(file, d.place) {
		return false
	}
	if d.place.Homes == nil && d.guessed == "" {
		d.guessed = strings.Clone(file)
	}
	return true
}

// process returns the actor of a line; nil if it is not known. Fork, join and exec events make a new one.
func (d *declared) process(l *facts.Line) *actor {
	k := l.Event
	if l.By == nil {
		return nil
	}
	var parent *actor
	if l.By.Parent != nil {
		parent, _ = l.By.Parent.Note.(*actor)
	}
	switch k.Kind {
	case schema.KindFork, schema.KindJoin:
		p := &actor{parent: parent}
		if parent != nil {
			p.own, p.helper = parent.own, parent.helper
		}
		l.By.Note = p
	case schema.KindExec:
		p := &actor{parent: parent}
		switch {
		case !d.begun: // the run's command
			p.own = true
		case d.program.Is(k.Value, k.Argv) && !d.program.Runs(k.Argv) && !d.made(l):
			p.own = true
		case parent != nil && (parent.helper || parent.own && d.program.Runs(k.Argv)):
			p.helper = true
		}
		d.begun, l.By.Note = true, p
	}
	p, _ := l.By.Note.(*actor)
	return p
}

// made reports whether the run may have made the program that a line executes, or a file that is one of its arguments.
func (d *declared) made(l *facts.Line) bool {
	return l.By.Made || d.facts.MayMake() || slices.ContainsFunc(l.Event.Argv, func(arg string) bool {
		return d.facts.MadeArgument(arg, l.Event.Cwd)
	})
}

// within reports whether a call was open at a time.
func (d *declared) within(at int64) bool {
	return slices.ContainsFunc(d.calls, func(c schema.Binding) bool {
		return c.TStartNS != nil && at >= *c.TStartNS && (c.TEndNS == nil || at <= *c.TEndNS)
	})
}

// leavesNothing reports whether a write leaves no file, or is to a log of the run.
func (d *declared) leavesNothing(name string, l *facts.Line) bool {
	return !strings.HasPrefix(name, "/") || l.InMemory || l.Unlinked ||
		matches(harmlessFiles, name) || slices.Contains(d.logs, name)
}

// nameSockets are the sockets of local name services.
var nameSockets = []string{"unix:/run/nscd/socket", "unix:/var/run/nscd/socket",
	"unix:/run/systemd/resolve/io.systemd.Resolve"}

// allowedHost reports whether the rule allows an endpoint. If the agent program itself contacts it (own), it may also
// look up names.
func (d *declared) allowedHost(endpoint string, k *schema.KernelEvent, own bool) bool {
	if file, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		return own && slices.Contains(nameSockets, endpoint) || d.owns(file) ||
			matches(d.paths, file)
	}
	if d.program.Contacts(k.Names) || matches(d.hosts, endpoint) || slices.ContainsFunc(k.Names, func(n string) bool {
		return matches(d.hosts, n)
	}) {
		return true
	}
	ap, err := netip.ParseAddrPort(endpoint)
	return err == nil && (own && ap.Port() == dnsPort || matches(d.hosts, ap.Addr().Unmap().String()))
}

func (d *declared) add(p *actor, k *schema.KernelEvent, verb, what string) {
	if p == nil {
		p = &actor{}
	}
	if len(d.actions) == maxActions {
		d.beyond++
		return
	}
	d.actions = append(d.actions,
		action{p, verb + " " + what,
			Evidence{Text: fmt.Sprintf("%s %s by process %d at %.3fs", verb, what, k.PID, float64(k.TNS)/1e9),
				Layer: schema.KernelPath, Line: k.Seq + 1}, k.TNS})
}
