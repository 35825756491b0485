package shim

import (
	"cmp"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// what says to people what a process does that executes a Program.
const what = "sandbox"

// Args are the arguments of a shim whose list is descriptor fd.
func Args(fd int) []string { return steps.Args(fd, what) }

// Is reports whether argv is a shim's. It does not tell whose program it is:
// compare the executable.
func Is(argv []string) bool { return steps.Is(argv, what) }

// Program is a plan as a list of steps, and what each step is for.
type Program struct {
	list       *steps.List
	operations []operation
	words      map[int]string // in front of a step's error
	needs      map[int]Need
}

// operation is a part of a layer, and its steps.
type operation struct {
	layer, name string
	from, to    int
	needed      bool // no command starts without it
}

// compiler makes a Program of a plan.
type compiler struct {
	Program
	plan    Plan
	l       *steps.List
	control int         // the descriptor of the control socket
	giveUp  steps.Label // tells what failed, and ends
	stat    steps.Ref   // a struct stat that every operation may use
	ruleset steps.Ref   // Landlock's; negative for none
	mask    steps.Ref   // the signal mask that the command gets
	tails   []func()    // what comes at the end of the list
}

// Compile makes a program of a plan, for a process with the control socket as descriptor control.
func Compile(plan Plan, control int) *Program {
	c := &compiler{plan: plan, control: control}
	c.begin()
	l := c.l
	c.giveUp = l.Label()
	l.OnError(0)
	l.Call(unix.SYS_FCNTL, control, unix.F_SETFD, unix.FD_CLOEXEC)
	if plan.Clone != 0 {
		c.again()
	}
	c.process()
	c.mounts()
	c.network()
	c.rules()
	if plan.Init {
		c.fork()
	}
	c.privileges()
	c.restrict()
	c.filter()
	c.command()
	return &c.Program
}

func (c *compiler) begin() {
	c.l = steps.New()
	c.Program = Program{list: c.l, words: map[int]string{}, needs: map[int]Need{}}
	c.stat = c.l.Space(int(sizeofStat))
	c.ruleset = c.l.Word(1<<64 - 1)
	c.mask = c.l.Word(0)
}

// File is the list, as steps.List.File returns it.
func (p *Program) File() (*os.File, error) { return p.list.File() }

// Operations are the names of what is done for the layers, in order.
func (p *Program) Operations() []string {
	var names []string
	for _, op := range p.operations {
		names = append(names, op.name)
	}
	return names
}

// do compiles one operation of a layer. An error of it degrades the layer, or ends all where the
// plan does not allow that. The shim then goes on behind it.
func (c *compiler) do(layer, name string, compile func()) {
	c.operation(layer, name, !c.plan.Degrade, compile)
}

func (c *compiler) operation(layer, name string, needed bool, compile func()) {
	if slices.Contains(c.plan.Without, layer) {
		return
	}
	op := operation{layer: layer, name: name, from: c.l.Len(), needed: needed}
	after := c.l.Label()
	if c.l.OnError(after); needed {
		c.l.OnError(c.giveUp)
	}
	if c.plan.Fail == name {
		c.l.Fail(unix.EPERM)
	}
	compile()
	c.l.At(after)
	c.l.OnError(c.giveUp)
	op.to = c.l.Len()
	c.operations = append(c.operations, op)
}

// call compiles a call whose error is told with words in front of it.
func (c *compiler) call(words string, nr int, args ...any) steps.Step {
	if words != "" {
		c.words[c.l.Len()] = words
	}
	return c.l.Call(nr, args...)
}

func (c *compiler) fail(words string, errno unix.Errno) {
	if words != "" {
		c.words[c.l.Len()] = words
	}
	c.l.Fail(errno)
}

// Outcome is what a shim tells of its layers.
type Outcome struct {
	Layers   []Report
	Stopped  string // the layer without which the command does not start
	Unusable []Unusable
}

// Outcome reads which steps failed: the layers as far as the shim came.
func (p *Program) Outcome(failed []steps.Failure) Outcome {
	var o Outcome
	for _, f := range failed {
		if need, ok := p.needs[f.Step]; ok {
			o.Unusable = append(o.Unusable, Unusable{need.Path, int(f.Errno)})
		}
	}
	for _, op := range p.operations {
		at := slices.IndexFunc(o.Layers, func(r Report) bool { return r.Layer == op.layer })
		if at < 0 {
			at = len(o.Layers)
			o.Layers = append(o.Layers, Report{Layer: op.layer, State: Enforced})
		}
		for _, f := range failed {
			if f.Step < op.from || f.Step >= op.to {
				continue
			}
			if r := &o.Layers[at]; r.State == Enforced {
				r.State = cmp.Or(map[string]string{Namespaces: Unavailable}[op.layer], Degraded)
				r.Reason, r.Errno = op.name+": "+p.reason(f), int(f.Errno)
			}
			if op.needed {
				o.Stopped = op.layer
				return o
			}
		}
	}
	return o
}

func (p *Program) reason(f steps.Failure) string {
	if words := p.words[f.Step]; words != "" {
		return words + ": " + f.Errno.Error()
	}
	return f.Errno.Error()
}
