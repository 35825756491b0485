package view

import (
	"context"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// maxRules limits the denied targets whose rules are kept.
const maxRules = 20_000

// gatherer collects a summary event by event.
type gatherer struct {
	tree         *tree
	facts        *facts.Reader
	dir          string            // the workspace: the command's first working directory
	rules        map[string]string // policy rules by the target that they denied
	missing      map[string]bool   // paths that the run removed or did not find
	missingBytes int
	events       uint64
	kinds        map[schema.KernelKind]uint64
	classes      [schema.NumClasses]uint64

	containers                               *tally[Container]
	programs                                 *tally[Program]
	commands                                 *tally[Command]
	created, written, changed, deleted, read *tally[File]
	hosts                                    *tally[Host]
	lookups                                  *tally[Name]
	denied, failed, privileged               *tally[Failure]
}

func newGatherer(processes int, workspace string) *gatherer {
	return &gatherer{
		tree: newTree(processes), facts: facts.NewReader(true), dir: workspace,
		missing: make(map[string]bool), containers: newTally[Container](),
		programs: newTally[Program](), kinds: make(map[schema.KernelKind]uint64), commands: newTally[Command](),
		created: newTally[File](), written: newTally[File](), changed: newTally[File](), deleted: newTally[File](),
		read:  newTally[File](),
		hosts: newTally[Host](), lookups: newTally[Name](), denied: newTally[Failure](), failed: newTally[Failure](),
		privileged: newTally[Failure](),
	}
}

func (g *gatherer) event(e *schema.KernelEvent) {
	n := e.Times()
	g.events += n
	if len(g.kinds) < 1024 || g.kinds[e.Kind] > 0 {
		g.kinds[e.Kind] += n
	}
	g.classes[e.Class] += n
	l := g.facts.Read(e)
	g.tree.event(l)
	g.failure(l, n)
	for _, a := range l.Amends {
		if p := g.programs.get(a.Name); p != nil {
			p.Made = true
		}
	}
	if e.ContainerID != "" && e.Class != schema.ClassSetup {
		g.container(l, n)
	}
	if e.Class == schema.ClassAgent && e.Kind == schema.KindOpen && e.Failed() && e.Errno() == "ENOENT" {
		g.note(e.Name(e.Value), true)
	}
	if e.Class != schema.ClassAgent || l.Outcome == facts.Failed && e.Kind != schema.KindConnect {
		return
	}
	for name, how := range e.Touches() {
		switch how {
		case schema.AccessRun:
			g.command(l, n)
		case schema.AccessConnect:
			g.host(l, n)
		default:
			if name != "/dev/null" {
				g.access(e.Name(name), how, l, n)
			}
		}
	}
	switch {
	case e.Kind == schema.KindAccept, e.Kind == schema.KindFlow && e.Peers > 0:
		g.listening(l, n)
	case e.Kind == schema.KindFlow:
		g.host(l, n)
	case e.Kind == schema.KindDNS && e.Value != "" && (e.DNS == nil || !e.DNS.Response):
		if c := g.lookups.at(e.Value, n); c != nil {
			c.Name, c.Count = e.Value, c.Count+n
		}
	}
}

// container counts an event in its container.
func (g *gatherer) container(l *facts.Line, n uint64) {
	e := l.Event
	c := g.containers.at(e.ContainerID, n)
	if c == nil {
		return
	}
	if c.Count == 0 {
		c.ID, c.Argv = e.ContainerID, []string{}
	}
	if c.Exe == "" && e.Kind == schema.KindExec && facts.Elsewhere(e) {
		c.Exe, c.Argv = e.Name(e.Value), append(c.Argv, e.Argv...)
	}
	c.Count += n
}

// access adds a path to the lists for how it was touched.
func (g *gatherer) access(path string, how schema.Access, l *facts.Line, n uint64) {
	e := l.Event
	if how&schema.AccessCreate != 0 && !e.Makes() && !g.missing[path] {
		how = how&^schema.AccessCreate | schema.AccessWrite // it may have existed
	}
	g.note(path, how&schema.AccessRemove != 0)
	for _, f := range []struct {
		access schema.Access
		tally  *tally[File]
	}{
		{schema.AccessCreate, g.created}, {schema.AccessWrite, g.written}, {schema.AccessChange, g.changed},
		{schema.AccessRemove, g.deleted},
	} {
		if how&f.access != 0 {
			g.file(f.tally, path, l, n, e.BytesOut)
		}
	}
	if how == schema.AccessRead {
		g.file(g.read, path, l, n, 0)
	}
}

// note remembers whether a path is missing now.
func (g *gatherer) note(path string, missing bool) {
	switch {
	case g.missing[path] == missing:
	case !missing:
		delete(g.missing, path)
		g.missingBytes -= len(path)
	case len(g.missing) < maxDistinct && g.missingBytes+len(path) <= maxKeyBytes:
		g.missing[strings.Clone(path)] = true
		g.missingBytes += len(path)
	}
}

func (g *gatherer) command(l *facts.Line, n uint64) {
	e := l.Event
	if p := g.programs.at(marked(e), n); p != nil {
		if p.Count == 0 {
			p.Exe, p.By = marked(e), g.tree.parentExe(l)
			p.Made = l.By.Made
		}
		p.Count += n
	}
	argv := e.Argv
	if c := g.commands.at(marked(e)+"\x00"+Cut(strings.Join(argv, "\x00"), 4096), n); c != nil {
		if c.Count == 0 {
			c.Argv, c.Exe = shortArgs(argv), marked(e)
		}
		c.Count += n
	}
}

// shortArgs returns the part of an argument vector that is shown.
func shortArgs(argv []string) []string {
	const args, chars = 64, 256
	out := make([]string, 0, min(len(argv), args))
	for i, a := range argv {
		if i == args {
			return append(out, "…")
		}
		out = append(out, strings.Clone(Cut(a, chars)))
	}
	return out
}

func (g *gatherer) file(t *tally[File], path string, l *facts.Line, n, bytes uint64) {
	if path == "" {
		return
	}
	f := t.at(path, n)
	switch {
	case f == nil && t == g.read && holdsSecrets(path):
		t.secret += n
	case f == nil && g.outside(path, l):
		t.outside += n
	case f != nil:
		if f.Count == 0 {
			f.Path, f.By = path, g.tree.exe(l)
			f.Outside, f.Secret = g.outside(path, l),
				holdsSecrets(path)
		}
		f.ByEach = used(f.ByEach, f.By, f.Count, g.tree.exe(l), n)
		f.Count += n
		f.Bytes += bytes
	}
}

// outside reports whether a file is not in the workspace.
func (g *gatherer) outside(path string, l *facts.Line) bool {
	return g.dir == "" || !rooted(path, g.dir) || facts.Elsewhere(l.Event)
}

func (g *gatherer) host(l *facts.Line, n uint64) {
	e := l.Event
	if e.Value == "" {
		return
	}
	in := g.networkOf(e, e.Name(e.Value))
	h := g.hosts.at(e.Name(e.Value)+in.Mark(), n)
	if h == nil {
		return
	}
	if h.Endpoint == "" {
		h.Network = in
		h.Endpoint, h.Protocol, h.By = e.Name(e.Value), e.Protocol, g.tree.exe(l)
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

// networkOf returns the network namespace of an event about a host. A flow has no process, so the first network counts
// in which the host was seen, the command's own before others.
func (g *gatherer) networkOf(e *schema.KernelEvent, key string) facts.Network {
	if e.Kind != schema.KindFlow {
		return g.facts.Network(e)
	}
	for _, in := range []facts.Network{facts.OwnNetwork, facts.OtherNetwork, facts.UnknownNetwork} {
		if g.hosts.has(key + in.Mark()) {
			return in
		}
	}
	return facts.OwnNetwork
}

// listening adds connections to an endpoint on which the run listened. The endpoint is listed, not each peer.
func (g *gatherer) listening(l *facts.Line, n uint64) {
	e := l.Event
	if e.Local == "" {
		return
	}
	in := g.networkOf(e, "listening "+e.Local)
	h := g.hosts.at("listening "+e.Local+in.Mark(), n)
	if h == nil {
		return
	}
	h.Network = in
	if h.Endpoint == "" || h.By == "" {
		h.Endpoint, h.Listening, h.Protocol, h.By = e.Local, true, e.Protocol, g.tree.exe(l)
	}
	if e.Kind == schema.KindFlow {
		h.Peers += e.Peers
		h.BytesOut += e.BytesOut
		h.BytesIn += e.BytesIn
	} else {
		h.Count += n
	}
}

// Denied reports whether a policy or permissions refused the event's action.
func Denied(e *schema.KernelEvent) bool {
	errno := e.Errno()
	return e.Blocked() || e.Failed() && (errno == "EACCES" || errno == "EPERM" || errno == "EROFS")
}

// failure adds an event to what was denied, failed or needed privilege.
func (g *gatherer) failure(l *facts.Line, n uint64) {
	e := l.Event
	var t *tally[Failure]
	value, result := e.Name(e.Value), Outcome(e)
	switch {
	case e.Class == schema.ClassRunner: // the recorder's own set-up
		return
	case Denied(e):
		t = g.denied
	case e.Class != schema.ClassAgent && e.Kind != schema.KindLeave: // of checks and containers
		return
	case e.Kind >= schema.KindSetID && e.Kind <= schema.KindCompatSyscall || e.Kind == schema.KindLeave:
		t = g.privileged
		if e.Call != "" {
			value = strings.TrimSpace(e.Call + " " + value)
		}
	case e.Failed():
		t = g.failed
	default:
		return
	}
	if f := t.at(e.Kind.String()+"\x00"+value+"\x00"+result, n); f != nil {
		if f.Count == 0 {
			f.Kind, f.Value, f.Result, f.By = e.Kind.String(), value, result, g.tree.exe(l)
			if e.RuleID != 0 {
				f.Rule = g.rules[e.Value]
			}
		}
		f.ByEach = used(f.ByEach, f.By, f.Count, g.tree.exe(l), n)
		f.Count += n
	}
}

func (g *gatherer) summary(limit int) *Summary {
	s := &Summary{Events: g.events, ByKind: make(map[string]uint64), ByClass: make(map[string]uint64),
		Processes: g.tree.done()}
	for k, n := range g.kinds {
		s.ByKind[k.String()] = n
	}
	for c, n := range g.classes {
		if n > 0 {
			s.ByClass[schema.Class(c).String()] = n
		}
	}
	// Files in the workspace come first among those that were changed, and last among those that were read.
	changed := func(f *File) int {
		if f.Secret {
			return -1
		}
		return -fileRank(f.Path, g.dir)
	}
	first := func(f *Failure) int {
		if holdsSecrets(f.Value) {
			return 0
		}
		return 1
	}
	if g.containers.list(1, func(*Container) int { return 0 }).Total > 0 {
		s.Containers = g.containers.list(limit, func(*Container) int { return 0 })
	}
	s.Programs = g.programs.list(limit, func(p *Program) int { return programRank(p, g.dir) })
	s.Commands = g.commands.list(limit, func(c *Command) int { return programRank(&Program{Exe: c.Exe}, g.dir) })
	s.Created, s.Written, s.Changed, s.Deleted = g.created.list(limit, changed), g.written.list(limit, changed),
		g.changed.list(limit, changed), g.deleted.list(limit, changed)
	s.Read = g.read.list(limit, func(f *File) int {
		if g.created.has(f.Path) && !f.Secret {
			return rankWorkspace // the run made it
		}
		return fileRank(f.Path, g.dir)
	})
	s.Hosts = g.hosts.list(limit, func(h *Host) int { return hostRank(h.Endpoint) })
	s.Lookups = g.lookups.list(limit, func(*Name) int { return 0 })
	s.Denied, s.Failed, s.Privileged = g.denied.list(limit, first), g.failed.list(limit, first),
		g.privileged.list(limit, first)
	return s
}

// policies reads the policy layer: the rules that denied something, and the denied tool calls.
func (g *gatherer) policies(ctx context.Context, src Source) error {
	g.rules = map[string]string{}
	for it, err := range src.Items(ctx, schema.PolicyPath) {
		if err != nil {
			return err
		}
		e := it.Policy
		switch {
		case !schema.Denies(e.Decision):
		case e.Target == "":
			g.deniedCall(e.Tool, e.Decision, e.Rule)
		case len(g.rules) < maxRules:
			g.rules[e.Target] = e.Rule
		}
	}
	return nil
}

// deniedCall adds a tool call that a policy denied.
func (g *gatherer) deniedCall(tool, decision, rule string) {
	f := g.denied.at(strings.Join([]string{ToolCall, tool, decision, rule}, "\x00"), 1)
	if f == nil {
		return
	}
	f.Kind, f.Value, f.Result, f.Rule = ToolCall, tool, decision, rule
	f.Count++
}
