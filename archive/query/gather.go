package query

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// gatherer collects a summary event by event.
type gatherer struct {
	tree    *tree
	rules   map[string]string // that denied, by what they denied
	events  uint64
	kinds   map[schema.KernelKind]uint64
	classes [schema.NumClasses]uint64

	commands                                 *tally[Command]
	created, written, changed, deleted, read *tally[File]
	hosts                                    *tally[Host]
	lookups                                  *tally[Name]
	denied, failed, privileged               *tally[Failure]
}

func newGatherer(processes int) *gatherer {
	return &gatherer{
		tree: newTree(processes), kinds: make(map[schema.KernelKind]uint64), commands: newTally[Command](),
		created: newTally[File](), written: newTally[File](), changed: newTally[File](), deleted: newTally[File](), read: newTally[File](),
		hosts: newTally[Host](), lookups: newTally[Name](), denied: newTally[Failure](), failed: newTally[Failure](), privileged: newTally[Failure](),
	}
}

func (g *gatherer) event(e *schema.KernelEvent) {
	n := e.Times()
	g.events += n
	if len(g.kinds) < 1024 || g.kinds[e.Kind] > 0 {
		g.kinds[e.Kind] += n
	}
	g.classes[e.Class] += n
	g.tree.event(e)
	g.failure(e, n)
	if e.Class != schema.ClassAgent || e.Failed() && e.Kind != schema.KindConnect {
		return
	}
	for name, how := range e.Touches() {
		switch how {
		case schema.AccessRun:
			g.command(e, n)
		case schema.AccessConnect:
			g.host(e, n)
		default:
			g.access(name, how, e, n)
		}
	}
	switch {
	case e.Kind == schema.KindFlow:
		g.host(e, n)
	case e.Kind == schema.KindDNS && e.Value != "" && (e.DNS == nil || !e.DNS.Response):
		if c := g.lookups.at(e.Value, n); c != nil {
			c.Name, c.Count = e.Value, c.Count+n
		}
	}
}

// access files a path under how it was touched.
func (g *gatherer) access(path string, how schema.Access, e *schema.KernelEvent, n uint64) {
	if path == "/dev/null" {
		return
	}
	for _, f := range []struct {
		access schema.Access
		tally  *tally[File]
	}{
		{schema.AccessCreate, g.created}, {schema.AccessWrite, g.written}, {schema.AccessChange, g.changed}, {schema.AccessRemove, g.deleted},
	} {
		if how&f.access != 0 {
			g.file(f.tally, path, e, n, e.BytesOut)
		}
	}
	if how == schema.AccessRead {
		g.file(g.read, path, e, n, 0)
	}
}

func (g *gatherer) command(e *schema.KernelEvent, n uint64) {
	argv := e.Argv
	if c := g.commands.at(marked(e)+"\x00"+cut(strings.Join(argv, "\x00"), 4096), n); c != nil {
		if c.Count == 0 {
			c.Argv, c.Exe = shortArgs(argv), marked(e)
		}
		c.Count += n
	}
}

// shortArgs keeps what is shown of an argument vector.
func shortArgs(argv []string) []string {
	const args, chars = 64, 256
	out := make([]string, 0, min(len(argv), args))
	for i, a := range argv {
		if i == args {
			return append(out, "…")
		}
		out = append(out, strings.Clone(cut(a, chars)))
	}
	return out
}

func (g *gatherer) file(t *tally[File], path string, e *schema.KernelEvent, n, bytes uint64) {
	if path == "" {
		return
	}
	if f := t.at(path, n); f != nil {
		if f.Count == 0 {
			f.Path, f.By = path, g.tree.exe(e)
		}
		f.Count += n
		f.Bytes += bytes
	}
}

func (g *gatherer) host(e *schema.KernelEvent, n uint64) {
	if e.Value == "" {
		return
	}
	h := g.hosts.at(e.Value, n)
	if h == nil {
		return
	}
	if h.Endpoint == "" {
		h.Endpoint, h.Protocol, h.By = e.Value, e.Protocol, g.tree.exe(e)
	}
	if e.Kind != schema.KindFlow {
		h.Count += n
	} else {
		h.BytesOut += e.BytesOut
		h.BytesIn += e.BytesIn
	}
	if e.Failed() || e.Blocked() {
		h.Failed += n
	}
	for _, name := range e.Names {
		if len(h.Names) < 8 && !slices.Contains(h.Names, name) {
			h.Names = append(h.Names, name)
		}
	}
}

// failure notes what was denied, failed or needed privilege.
func (g *gatherer) failure(e *schema.KernelEvent, n uint64) {
	var t *tally[Failure]
	value, result := e.Value, outcome(e)
	switch {
	case e.Blocked(), e.Failed() && (result == "EACCES" || result == "EPERM"):
		t = g.denied
	case e.Class == schema.ClassRunner && !e.Failed(): // how it came to be contained
		return
	case e.Kind >= schema.KindSetID && e.Kind <= schema.KindCompatSyscall || e.Kind == schema.KindLeave:
		t = g.privileged
		if e.Call != "" {
			value = strings.TrimSpace(e.Call + " " + value)
		}
	case e.Failed() && e.Class == schema.ClassAgent:
		t = g.failed
	default:
		return
	}
	if f := t.at(e.Kind.String()+"\x00"+value+"\x00"+result, n); f != nil {
		if f.Count == 0 {
			f.Kind, f.Value, f.Result, f.By = e.Kind.String(), value, result, g.tree.exe(e)
			if e.RuleID != 0 {
				f.Rule = g.rules[e.Value]
			}
		}
		f.Count += n
	}
}

func (g *gatherer) summary(limit int) *Summary {
	s := &Summary{Events: g.events, ByKind: make(map[string]uint64), ByClass: make(map[string]uint64), Processes: g.tree.done()}
	for k, n := range g.kinds {
		s.ByKind[k.String()] = n
	}
	for c, n := range g.classes {
		if n > 0 {
			s.ByClass[schema.Class(c).String()] = n
		}
	}
	files := func(t *tally[File]) List[File] {
		return t.list(limit, func(f *File) (uint64, string) { return max(f.Count, f.Bytes), f.Path })
	}
	failures := func(t *tally[Failure]) List[Failure] {
		return t.list(limit, func(f *Failure) (uint64, string) { return f.Count, f.Kind + f.Value + f.Result })
	}
	s.Commands = g.commands.list(limit, func(c *Command) (uint64, string) { return c.Count, c.Exe + strings.Join(c.Argv, " ") })
	s.Created, s.Written, s.Changed, s.Deleted, s.Read = files(g.created), files(g.written), files(g.changed), files(g.deleted), files(g.read)
	s.Hosts = g.hosts.list(limit, func(h *Host) (uint64, string) { return h.BytesIn + h.BytesOut + h.Count, h.Endpoint })
	s.Lookups = g.lookups.list(limit, func(x *Name) (uint64, string) { return x.Count, x.Name })
	s.Denied, s.Failed, s.Privileged = failures(g.denied), failures(g.failed), failures(g.privileged)
	return s
}
