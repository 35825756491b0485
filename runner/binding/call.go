package binding

import (
	"slices"
	"strings"
	"unicode"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

// methods are the methods of binding, the strongest first.
var methods = [...]string{schema.BoundByCgroup, schema.BoundByEnv, schema.BoundByLineage, schema.BoundByWindow}

const window = 3 // index of the weakest method

// call is one tool call and what is known about it.
type call struct {
	id, tool, decision string

	sdk, policy bool // who reported it
	gateway     bool // dispatched by the runner's own gateway
	decided     bool // the gateway decided it
	attached    bool // it has a cgroup
	denied      bool
	failed      bool // the agent says so

	start, end      agentlog.Arrival
	started, ended  bool   // it is open from start to end
	begun           uint8  // who said that it began
	orph            bool   // its end was reported before its start
	first, last     uint64 // the lines that opened and ended it, in order of arrival
	twice, conflict bool

	cgroupID uint64
	tree     uint32   // only this process and its descendants execute it; 0: any process
	argv     string   // the shell command that it runs, as joined returns it; empty: unknown
	shell    *command // the process of that command; nil: not found
	bound    [len(methods)]uint64
	kinds    map[schema.KernelKind]uint64
	effects  effects

	proposed  bool // a model proposed it; its window is the proposal's unless another report is better
	proposal  *proposal
	matchedBy string
	moved     bool   // its proposal belongs to another call now
	args      []byte // digest of the canonical arguments; nil: unknown

	edge        uint64 // events at its edges
	edgeEffects effects
	overlap     uint64 // events while other calls were open too
}

// reported reports whether anybody has reported this call.
func (c *call) reported() bool { return c.sdk || c.policy || c.gateway || c.attached }

// ran reports whether the call can have run. It cannot if the gateway decided about it and did not dispatch it, as in
// a dry run.
func (c *call) ran() bool { return !c.denied && !(c.decided && c.begun == 0 && !c.attached) }

func (c *call) events() (n uint64) {
	for _, k := range c.bound {
		n += k
	}
	return n
}

// stronger counts the events that were bound by more than time.
func (c *call) stronger() uint64 { return c.events() - c.bound[window] }

// meets reports whether two calls were open at the same time. Lines read in one poll are ordered by position.
func (c *call) meets(d *call) bool {
	return (!c.ended || d.first < c.last) && (!d.ended || c.first < d.last)
}

// possible reports whether the call can have been open at some time in a span, and certain whether it was open during
// all of it. Until its end is known, it is open.
func (c *call) possible(first, last int64) bool {
	return c.started && last > c.start.After && (!c.ended || first <= c.end.At)
}

func (c *call) certain(first, last int64) bool {
	end := c.end.After
	if c.shell != nil { // what its own command does until then is the call's
		end = c.end.At
	}
	return c.started && first >= c.start.At && (!c.ended || last <= end)
}

// doneBy reports whether a process can have done something for the call.
func (c *call) doneBy(by member) bool {
	return (c.tree == 0 || c.tree == by.root) && (c.shell == nil || by.shell.within(c.shell))
}

func (c *call) add(method int, e *schema.KernelEvent, b *budget) {
	n := e.Times()
	c.bound[method] += n
	if c.kinds == nil {
		c.kinds = make(map[schema.KernelKind]uint64)
	}
	if _, known := c.kinds[e.Kind]; known || len(c.kinds) < 64 {
		c.kinds[e.Kind] += n
	}
	c.effects.add(e, b, true)
}

func (c *call) binding() schema.Binding {
	b := schema.Binding{
		ToolCallID: c.id, Tool: c.tool, PolicyDecision: c.decision, Failed: c.failed, CgroupID: c.cgroupID,
		KernelEventCount: c.events(),
		Window:           schema.Window{Start: schema.RunStarted, End: schema.RunFinished}, Effects: c.effects.list(),
	}
	for i, n := range c.bound {
		if n == 0 {
			continue
		}
		if b.Method == "" {
			b.Method, b.Methods = methods[i], make(map[string]uint64)
		}
		b.Methods[methods[i]] = n
	}
	if len(c.kinds) > 0 {
		b.Kinds = make(map[string]uint64, len(c.kinds))
		for k, n := range c.kinds {
			b.Kinds[k.String()] += n
		}
	}
	if c.proposal != nil {
		b.ModelSeq, b.MatchedBy = c.proposal.seq, c.matchedBy
	}
	if c.started {
		b.TStartNS = &c.start.At
	}
	if c.ended {
		b.TEndNS = &c.end.At
	}
	return b
}

// beyondClaim returns what the call did although its tool's name says otherwise.
func (c *call) beyondClaim() (schema.Effects, bool) {
	reads, network := claim(c.tool)
	if !reads {
		return schema.Effects{}, false
	}
	all := c.effects.list()
	found := schema.Effects{Written: all.Written}
	if !network {
		found.Hosts = all.Hosts
	}
	return found, len(found.Written)+len(found.Hosts) > 0
}

var (
	readWords = []string{"read", "get", "list", "ls", "view", "show", "search", "find", "grep", "glob", "stat", "cat",
		"head", "tail",
		"query", "describe", "lookup", "inspect", "fetch", "browse"}
	networkWords = []string{"fetch", "browse", "web", "http", "url", "download", "internet", "online", "remote", "api"}
	writeWords   = []string{"write", "edit", "create", "delete", "remove", "update", "patch", "move", "rename", "copy",
		"make", "save", "put", "post",
		"set", "add", "append", "insert", "replace", "run", "exec", "execute", "shell", "bash", "command", "install",
		"build", "apply", "commit", "push",
		"download", "upload", "send", "mkdir", "touch", "notebook"}
)

// claim reports whether a tool's name says that it only reads, and whether it reads over the network. Most names
// claim nothing.
func claim(tool string) (reads, network bool) {
	for _, w := range words(tool) {
		switch {
		case slices.Contains(writeWords, w):
			return false, false
		case slices.Contains(readWords, w):
			reads = true
		}
		network = network || slices.Contains(networkWords, w)
	}
	return reads, network
}

// words splits a name at capitals and at characters that are not letters.
func words(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if lower && unicode.IsUpper(r) || !unicode.IsLetter(r) {
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		if unicode.IsLetter(r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return strings.Fields(b.String())
}
