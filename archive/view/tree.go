package view

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Tree is the process tree, with the first processes of the run.
type Tree struct {
	// Total counts all processes, Shown those below Roots.
	Total uint64  `json:"total"`
	Shown uint64  `json:"shown"`
	Roots []*Node `json:"roots"`
}

// Node is a process with what it executed last. Successive children that executed the same program, started nothing
// and ended in the same way are one Node with a Count.
type Node struct {
	PID  uint32   `json:"pid"`
	Exe  string   `json:"exe,omitempty"`
	Argv []string `json:"argv,omitempty"`
	// Execs counts the programs that it executed.
	Execs    int    `json:"execs,omitempty"`
	StartNS  int64  `json:"start_ns"`
	EndNS    *int64 `json:"end_ns"`
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Joined   bool   `json:"joined,omitempty"`
	// Count is the number of processes that the node stands for.
	Count    uint64  `json:"count"`
	Children []*Node `json:"children,omitempty"`

	parent *Node
	shown  bool
}

// tree builds the process tree from lines in order. It keeps at most limit processes. The note of an instance is its
// Node.
type tree struct {
	limit, kept int
	total       uint64
	roots       []*Node
}

func newTree(limit int) *tree { return &tree{limit: limit} }

// node returns the node of an instance; nil if it has none.
func (t *tree) node(in *facts.Instance) *Node {
	if in == nil {
		return nil
	}
	n, _ := in.Note.(*Node)
	return n
}

// exe returns the executable of a line's process; empty if unknown.
func (t *tree) exe(l *facts.Line) string {
	if p := t.node(l.By); p != nil {
		return p.Exe
	}
	return ""
}

// parentExe returns the executable of the parent of a line's process; empty if unknown.
func (t *tree) parentExe(l *facts.Line) string {
	p := t.node(l.By)
	if p == nil || p.parent == nil {
		return ""
	}
	return p.parent.Exe
}

func (t *tree) event(l *facts.Line) {
	e := l.Event
	switch e.Kind {
	case schema.KindFork, schema.KindJoin:
		t.total++
		if e.ExecID == 0 {
			return
		}
		p := &Node{PID: e.PID, StartNS: e.TNS, Count: 1, Joined: e.Kind == schema.KindJoin, Exe: e.Name(e.Exe)}
		l.By.Note = p
		if parent := t.node(l.By.Parent); parent != nil {
			if p.parent = parent; !p.Joined {
				p.Exe = parent.Exe
			}
		}
		if t.kept < t.limit && (p.parent == nil || p.parent.shown) {
			t.kept++
			t.attach(p)
		}
	case schema.KindExec:
		p := t.node(l.By.Parent)
		if p == nil {
			return
		}
		l.By.Note = p
		p.Exe, p.Argv = marked(e), shortArgs(e.Argv)
		p.Execs++
	case schema.KindExit:
		if p := t.node(l.By); p != nil {
			t.exit(p, e)
		}
	}
}

func (t *tree) attach(p *Node) {
	p.shown = true
	if p.parent != nil {
		p.parent.Children = append(p.parent.Children, p)
	} else {
		t.roots = append(t.roots, p)
	}
}

func (t *tree) exit(p *Node, e *schema.KernelEvent) {
	end := e.TNS
	p.EndNS = &end
	if sig := e.WaitStatus & 0x7f; sig != 0 {
		p.Signal = schema.SignalName(sig)
	} else {
		code := int(e.WaitStatus >> 8 & 0xff)
		p.ExitCode = &code
	}
	if p.parent == nil || len(p.Children) > 0 {
		return
	}
	// Merge it into the sibling before it if that ended in the same way.
	row := p.parent.Children
	i := slices.Index(row, p)
	if i < 1 {
		return
	}
	if q := row[i-1]; alike(q, p) {
		q.Count += p.Count
		q.EndNS = p.EndNS
		p.parent.Children = slices.Delete(row, i, i+1)
		t.kept--
	}
}

func alike(a, b *Node) bool {
	return a.EndNS != nil && len(a.Children) == 0 && a.Exe == b.Exe && a.Execs == b.Execs && a.Signal == b.Signal &&
		(a.ExitCode == nil) == (b.ExitCode == nil) && (a.ExitCode == nil || *a.ExitCode == *b.ExitCode) &&
		a.Joined == b.Joined && slices.Equal(a.Argv, b.Argv)
}

func (t *tree) done() Tree {
	p := Tree{Total: t.total, Roots: t.roots}
	if p.Roots == nil {
		p.Roots = []*Node{}
	}
	var count func([]*Node)
	count = func(ps []*Node) {
		for _, q := range ps {
			p.Shown += q.Count
			count(q.Children)
		}
	}
	count(p.Roots)
	return p
}
