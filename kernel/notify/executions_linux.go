//go:build amd64 || arm64

package notify

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// executions knows which processes asked for an execution, and finds out what they execute then.
type executions struct {
	table     *table
	events    *events
	names     *names
	pending   map[*process]bool // those with an execution to settle
	line      []byte            // a command line
	begun     bool              // the command was executed
	inherited bool              // the command was given a socket
}

func newExecutions(table *table, events *events, names *names) *executions {
	return &executions{table: table, events: events, names: names, pending: map[*process]bool{},
		line: make([]byte, maxArguments)}
}

// renew gives up the memory that a read which got stuck may still write to.
func (x *executions) renew() { x.line = make([]byte, maxArguments) }

// due reports whether an execution can be settled: its process made no call for a while.
func (x *executions) due(now uint64) bool {
	for p := range x.pending {
		if p.exec.asked.Time+uint64(settleTime) < now {
			return true
		}
	}
	return false
}

// asked notes a call of execve.
func (x *executions) asked(p *process, n *notification, call *kernel.Call, compat bool) {
	e := x.events.begin(schema.KindExecFailed, call.Hook, p, n.pid)
	call.Arguments(e, n.args, compat)
	dirfd, argv := int32(unix.AT_FDCWD), n.args[1]
	if call.Dirfd != kernel.NoArg {
		dirfd, argv = int32(n.args[0]), n.args[2]
	}
	x.names.last = x.names.last[:0]
	e.Value, e.Given = x.names.path(e, p, dirfd, n.args[call.Path])
	e.Syscall = call.Name
	of := &execution{asked: *e, filename: string(x.names.last)}
	if of.filename == "" && call.Dirfd != kernel.NoArg && e.Flags&unix.AT_EMPTY_PATH != 0 {
		if name, ok := x.names.link(p, fdName(dirfd)); ok {
			of.asked.Value = name
		}
	}
	var cut bool
	if of.asked.Argv, cut = p.vector(argv, compat); cut {
		of.asked.Truncated |= schema.FieldArgv
	}
	of.auxv = bytes.Clone(readAt(p.dir, "auxv", x.table.buf[:4096]))
	p.exec = of
	x.pending[p] = true
	x.events.tally.filter(call.Hook) // settle reports the result
}

// settle finds out whether p's execution succeeded. Its thread tid makes a call now; tid
// is 0 if none does.
func (x *executions) settle(p *process, tid uint32) {
	of := p.exec
	if of == nil {
		return
	}
	now := readAt(p.dir, "auxv", x.table.buf[:4096])
	switch {
	case len(now) > 0 && !bytes.Equal(now, of.auxv):
		x.executed(p, of)
	case len(now) == 0 && len(of.auxv) > 0 && tid != 0:
		x.concealed(p, of) // only a new program can make it unreadable
	case tid == of.asked.TID:
		x.notExecuted(p, of)
	default:
		return // another thread's call, or the execution is not finished
	}
	p.exec = nil
	delete(x.pending, p)
}

// executed reports what p executes, as /proc shows it.
func (x *executions) executed(p *process, of *execution) {
	e := x.events.begin(schema.KindExec, kernel.HookExec, p, p.pid)
	e.Time, e.First, e.Last = of.asked.Time, of.asked.Time, of.asked.Time
	e.Attempted, e.Claimed = false, false
	e.TID = of.asked.TID
	p.openMemory()
	if !x.begun { // the helper's socket is closed
		x.begun, x.inherited = true, hasSocket(p.dir)
	}
	if ppid, ok := x.parent(p); ok {
		p.ppid, e.Task.PPID = ppid, ppid
	}
	e.PPID, e.CgroupID = e.Task.PPID, e.Task.CgroupID
	exe, ok := x.names.link(p, "exe")
	if !ok {
		e.Marks |= schema.MarkUnreadable
	}
	if e.Value = deleted(e, exe); strings.HasPrefix(e.Value, "/memfd:") {
		e.Marks |= schema.MarkMemfd
	}
	var st unix.Statx_t // from the kernel's cache: a FUSE server that is asked may not answer
	if unix.Statx(p.dir, "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st) == nil {
		e.Inode, e.FileMode = st.Ino, uint32(st.Mode)
		e.Device = st.Dev_major<<20 | st.Dev_minor
	}
	if cwd, ok := x.names.link(p, "cwd"); ok {
		e.Cwd = cwd
	}
	e.Target = of.target(e)
	if p.unreadable() {
		e.Marks |= schema.MarkUnreadable
		x.events.tally.unreadable++
	}
	line := p.memoryFile("cmdline", x.line)
	if len(line) == maxArguments {
		e.Truncated |= schema.FieldArgv
	}
	e.Argv = cutStrings(line)
	x.environment(e, p)
	x.events.emit(e)
}

// environment sets the names of the variables in p's environment, and the values that
// bind p to a tool call.
func (x *executions) environment(e *kernel.Event, p *process) {
	block := p.memoryFile("environ", x.table.buf[:maxEnvironment])
	if len(block) == maxEnvironment {
		e.Truncated |= schema.FieldEnvKeys
	}
	e.EnvKeys = []string{}
	for _, entry := range cutStrings(block) {
		key, value, found := strings.Cut(entry, "=")
		if !found {
			continue
		}
		e.EnvKeys = append(e.EnvKeys, key)
		if len(value) > 128 {
			continue
		}
		switch key {
		case "ASSAY_TOOL_CALL_ID":
			e.CallInEnv = value
		case "TRACEPARENT":
			e.Traceparent = value
		}
	}
}

// notExecuted reports that the execution failed: p still runs its old program. The error
// is not known.
func (x *executions) notExecuted(p *process, of *execution) {
	e := x.events.begin(schema.KindExecFailed, kernel.HookExecFailed, p, p.pid)
	of.claim(e)
	x.events.emit(e)
}

// concealed reports that p executes a program whose process the observer may not read:
// the program has the set-user-id bit, or its user cannot read the file.
func (x *executions) concealed(p *process, of *execution) {
	e := x.events.begin(schema.KindExec, kernel.HookExec, p, p.pid)
	of.claim(e)
	e.Target = of.target(e)
	e.Marks |= schema.MarkUnreadable
	x.events.tally.unreadable++
	p.openMemory()
	x.events.emit(e)
}

// abandon reports an execution of a process that ended before its next call. Whether the
// execution succeeded is unknown.
func (x *executions) abandon(p *process) {
	if of := p.exec; of != nil {
		e := x.events.begin(schema.KindExec, kernel.HookExec, p, p.pid)
		of.claim(e)
		e.Target = of.target(e)
		x.events.emit(e)
		p.exec = nil
		delete(x.pending, p)
	}
}

// parent is the parent of p, as it is now.
func (x *executions) parent(p *process) (ppid uint32, ok bool) {
	if i, ok := info(p.pidfd, pidfdInfoPID); ok {
		return i.ppid, true
	}
	_, ppid, ok = status(p.dir, x.table.buf)
	return ppid, ok
}

// Bounds of what an execution's event holds, in bytes. The eBPF tier has the same.
const (
	maxArguments   = 128 << 10
	maxEnvironment = 64 << 10 // is read; the event holds the names only
)

// execution is a call of execve that the observer let go on. Whether it succeeded shows
// when the process makes its next call: then its memory is another.
type execution struct {
	asked    kernel.Event // the call's event: its path is the call's argument, made absolute
	filename string       // what was passed
	auxv     []byte       // of the process before the call
}

// cutStrings splits a block of strings. Each string ends with a NUL.
func cutStrings(block []byte) []string {
	list := []string{}
	for text := string(block); text != ""; {
		var one string
		one, text, _ = strings.Cut(text, "\x00")
		list = append(list, one)
	}
	return list
}

// target is what was passed to execve where that is not the program of e.
func (x *execution) target(e *kernel.Event) string {
	if x.filename == e.Value {
		return ""
	}
	return x.filename
}

// claim fills e from the call alone, for an execution that nothing else is known of.
func (x *execution) claim(e *kernel.Event) {
	a := &x.asked
	e.Time, e.First, e.Last, e.TID = a.Time, a.Time, a.Time, a.TID
	e.Syscall, e.Value, e.Given, e.Flags, e.Argv = a.Syscall, a.Value, a.Given, a.Flags, a.Argv
	e.UserMemory, e.Truncated, e.Marks = a.UserMemory, a.Truncated, a.Marks
	if e.Kind == schema.KindExec {
		e.PPID, e.CgroupID = e.Task.PPID, e.Task.CgroupID
	}
}
