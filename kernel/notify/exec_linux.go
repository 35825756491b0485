//go:build amd64 || arm64

package notify

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// Bounds of what an execution's event holds, in bytes. The eBPF tier has the same.
const (
	maxArguments   = 128 << 10
	maxEnvironment = 64 << 10 // is read; the event holds the names only
)

// execution is a call of execve that the observer let go on. Whether it succeeded shows
// when the process makes its next call: then its memory is another.
type execution struct {
	tid      uint32
	time     uint64
	syscall  string
	path     []byte // the call's argument, made absolute
	filename []byte
	flags    uint64
	argv     [][]byte
	cut      bool // argv is not whole
	given    []byte
	marks    kernel.Event // only its marks are used
	auxv     []byte       // of the process before the call
}

// executes notes a call of execve.
func (o *Observer) executes(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(kernel.KindExecFailed, call.Hook, p, n.pid)
	call.Arguments(e, n.args, compat)
	dirfd, argv := int32(unix.AT_FDCWD), n.args[1]
	if call.Dirfd != kernel.NoArg {
		dirfd, argv = int32(n.args[0]), n.args[2]
	}
	e.Path, e.Given = o.path(e, p, dirfd, n.args[call.Path], 0)
	x := &execution{tid: n.pid, time: e.Time, syscall: call.Name, path: bytes.Clone(e.Path), filename: bytes.Clone(o.names[0]), given: bytes.Clone(e.Given), flags: e.Flags, marks: *e}
	if len(o.names[0]) == 0 && call.Dirfd != kernel.NoArg && e.Flags&unix.AT_EMPTY_PATH != 0 {
		if name, ok := o.link(p, fdName(dirfd)); ok {
			x.path = []byte(name)
		}
	}
	x.argv, x.cut = p.vector(argv, compat)
	x.auxv = bytes.Clone(readAt(p.dir, "auxv", o.table.buf[:4096]))
	p.exec = x
	o.table.pending[p] = true
	o.filtered[call.Hook]++ // settle reports the result
}

// vector reads an argv.
func (p *process) vector(at uint64, compat bool) (argv [][]byte, cut bool) {
	argv = [][]byte{}
	if at == 0 {
		return argv, false
	}
	word := 8
	if compat {
		word = 4
	}
	var block [32 * 8]byte
	var text []byte
	for {
		b := block[:32*word]
		if n := int(pageSize - at%pageSize); n >= word && n < len(b) {
			b = b[:n/word*word]
		}
		if !p.read(b, at) {
			return argv, true
		}
		for ; len(b) > 0; b, at = b[word:], at+uint64(word) {
			pointer := uint64(le.Uint32(b))
			if !compat {
				pointer = le.Uint64(b)
			}
			if pointer == 0 {
				return argv, false
			}
			from := len(text)
			var tooLong, ok bool
			if text, tooLong, ok = p.text(text, pointer, maxArguments-from); !ok || tooLong || len(argv) >= maxArguments/8 {
				return argv, true
			}
			argv = append(argv, text[from:len(text):len(text)])
		}
	}
}

// settle finds out whether p's execution succeeded. Its thread tid makes a call now; tid
// is 0 if none does.
func (o *Observer) settle(p *process, tid uint32) {
	x := p.exec
	if x == nil {
		return
	}
	now := readAt(p.dir, "auxv", o.table.buf[:4096])
	switch {
	case len(now) > 0 && !bytes.Equal(now, x.auxv):
		o.executed(p, x)
	case len(now) == 0 && len(x.auxv) > 0 && tid != 0:
		o.concealed(p, x) // only a new program can make it unreadable
	case tid == x.tid:
		o.notExecuted(p, x)
	default:
		return // another thread's call, or the execution is not finished
	}
	p.exec = nil
	delete(o.table.pending, p)
}

// executed reports what p executes, as /proc shows it.
func (o *Observer) executed(p *process, x *execution) {
	e := o.event(kernel.KindExec, kernel.HookExec, p, p.pid)
	e.Time, e.First, e.Last = x.time, x.time, x.time
	e.Attempted, e.NoResult, e.Claimed = false, false, false
	e.PathSource = kernel.PathKernelObject
	if x.tid != p.pid {
		e.OldTID = x.tid
	}
	p.openMemory()
	if !o.executedOne { // the helper's socket is closed
		o.executedOne, o.inherited = true, hasSocket(p.dir)
	}
	if ppid, ok := o.parent(p); ok {
		p.ppid, e.PPID = ppid, ppid
	}
	exe, ok := o.link(p, "exe")
	e.Unreadable = !ok
	if exe, e.Deleted = strings.CutSuffix(exe, " (deleted)"); strings.HasPrefix(exe, "/memfd:") {
		e.Memfd = true
	}
	e.Exe = []byte(exe)
	e.Path = e.Exe
	var st unix.Statx_t // from the kernel's cache: a FUSE server that is asked may not answer
	if unix.Statx(p.dir, "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st) == nil {
		e.Inode, e.FileMode = st.Ino, uint32(st.Mode)
		e.Device = st.Dev_major<<20 | st.Dev_minor
	}
	if cwd, ok := o.link(p, "cwd"); ok {
		e.Cwd = []byte(cwd)
	}
	e.Filename = x.filename
	if p.unreadable() {
		e.Unreadable = true
		o.unreadable++
	}
	line := p.memoryFile("cmdline", o.lineBuf)
	e.ArgvTruncated = len(line) == maxArguments
	e.Argv = cutStrings(line)
	o.environment(e, p)
	o.emit(e)
}

// environment sets the names of the variables in p's environment, and the values that
// bind p to a tool call.
func (o *Observer) environment(e *kernel.Event, p *process) {
	block := p.memoryFile("environ", o.table.buf[:maxEnvironment])
	e.EnvTruncated = len(block) == maxEnvironment
	e.EnvKeys = [][]byte{}
	for _, entry := range cutStrings(block) {
		key, value, found := bytes.Cut(entry, []byte{'='})
		if !found {
			continue
		}
		e.EnvKeys = append(e.EnvKeys, key)
		if len(value) > 128 {
			continue
		}
		switch string(key) {
		case "ASSAY_TOOL_CALL_ID":
			e.ToolCallID = value
		case "TRACEPARENT":
			e.Traceparent = value
		}
	}
}

// cutStrings splits a block of strings. Each string ends with a NUL.
func cutStrings(block []byte) [][]byte {
	list := [][]byte{}
	for len(block) > 0 {
		one, rest, _ := bytes.Cut(block, []byte{0})
		list = append(list, one[:len(one):len(one)])
		block = rest
	}
	return list
}

// claim fills e from the call alone, for an execution that nothing else is known of.
func (x *execution) claim(e *kernel.Event) {
	e.Time, e.First, e.Last, e.TID = x.time, x.time, x.time, x.tid
	e.Syscall, e.Path, e.Given, e.Filename, e.Flags = x.syscall, x.path, x.given, x.filename, x.flags
	e.Argv, e.ArgvTruncated = x.argv, x.cut
	e.PathSource, e.Truncated, e.RelativePath, e.Unresolved, e.Unreadable = x.marks.PathSource, x.marks.Truncated, x.marks.RelativePath, x.marks.Unresolved, x.marks.Unreadable
}

// notExecuted reports that the execution failed: p still runs its old program. The error
// is not known.
func (o *Observer) notExecuted(p *process, x *execution) {
	e := o.event(kernel.KindExecFailed, kernel.HookExecFailed, p, p.pid)
	x.claim(e)
	o.emit(e)
}

// concealed reports that p executes a program whose process the observer may not read:
// the program has the set-user-id bit, or its user cannot read the file.
func (o *Observer) concealed(p *process, x *execution) {
	e := o.event(kernel.KindExec, kernel.HookExec, p, p.pid)
	x.claim(e)
	e.Exe, e.Unreadable = x.path, true
	o.unreadable++
	p.openMemory()
	o.emit(e)
}

// abandon reports an execution of a process that ended before its next call. Whether the
// execution succeeded is unknown.
func (o *Observer) abandon(p *process) {
	if x := p.exec; x != nil {
		e := o.event(kernel.KindExec, kernel.HookExec, p, p.pid)
		x.claim(e)
		e.Exe = x.path
		o.emit(e)
		p.exec = nil
		delete(o.table.pending, p)
	}
}
