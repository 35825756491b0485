//go:build amd64 || arm64

package notify

import (
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// calls are the notified system calls by number, of 64-bit and of 32-bit programs.
var calls = sync.OnceValues(func() (native, compat map[uint32]*kernel.Call) {
	native, compat = kernel.Calls()
	exit := func() *kernel.Call {
		return &kernel.Call{
			Name: "exit_group", Kind: schema.KindExit, Hook: kernel.HookExit, FD: kernel.NoArg, Dirfd: kernel.NoArg,
			Path:   kernel.NoArg,
			Dirfd2: kernel.NoArg, Path2: kernel.NoArg, Text: kernel.NoArg,
		}
	}
	native[exitGroup] = exit()
	if compatArch != 0 {
		compat[exitGroup2] = exit()
	}
	return native, compat
})

// callOf finds the system call of a notification. It returns nil if no table has the call.
func callOf(arch uint32, nr int32) (c *kernel.Call, compat bool) {
	native, others := calls()
	switch {
	case arch == auditArch:
		return native[uint32(nr)], false // x32 numbers are in no table
	case compatArch != 0 && arch == compatArch:
		return others[uint32(nr)], true
	}
	return nil, false
}

// reports tells of the calls that processes make, but for executions and ends.
type reports struct {
	table   *table
	events  *events
	names   *names
	sockets *sockets
	foreign map[foreignCall]bool // that were reported
}

func newReports(table *table, events *events, names *names) *reports {
	return &reports{table: table, events: events, names: names, sockets: newSockets(events, names),
		foreign: map[foreignCall]bool{}}
}

// call reports a system call that is about to be made.
func (r *reports) call(p *process, n *notification, call *kernel.Call, compat bool) {
	e := r.events.begin(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	if call.Name == "clone3" {
		if !r.clone3(e, p, n) {
			r.events.tally.filter(call.Hook)
			return
		}
	}
	call.Arguments(e, n.args, compat)
	switch call.Kind {
	case schema.KindConnect, schema.KindBind, schema.KindSendto:
		r.sockets.call(e, p, n, call, compat)
		return
	case schema.KindListen:
		r.sockets.listens(e, p, n)
		return
	case schema.KindChroot, schema.KindMount, schema.KindNamespace:
		r.table.roots++ // the call may change a root: look it up again
		r.table.changing[n.pid] = p
	}
	if call.Text != kernel.NoArg {
		r.names.text(e, p, n.args[call.Text])
	}
	if call.FD != kernel.NoArg {
		r.names.onDescriptor(e, p, int32(n.args[call.FD]))
	}
	if call.Path != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd])
		}
		e.Value, e.Given = r.names.path(e, p, dirfd, n.args[call.Path])
	}
	if call.Path2 != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd2 != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd2])
		}
		e.Target, e.TargetGiven = r.names.path(e, p, dirfd, n.args[call.Path2])
	}
	switch {
	case call.Name == "openat2":
		r.openHow(e, p, n.args[2], n.args[3])
	case call.Kind == schema.KindMemfd:
		e.Value, e.Target, e.UserMemory = e.Target, "", true
	}
	if e.Truncated != 0 && e.Target != "" && (call.Path2 != kernel.NoArg || call.Kind == schema.KindSymlink) {
		e.Truncated |= schema.FieldTarget
	}
	if e.Marks&schema.MarkUnreadable != 0 {
		r.events.tally.unreadable++
	}
	r.events.emit(e)
}

// denied reports a call that the observer refuses with EPERM.
func (r *reports) denied(p *process, n *notification, call *kernel.Call, compat bool) {
	e := r.events.begin(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	call.Arguments(e, n.args, compat)
	e.Attempted = false
	e.HasResult, e.Result, e.Errno = true, -int64(unix.EPERM), int32(unix.EPERM)
	r.events.emit(e)
}

// clone3 replaces the address of a struct clone_args by its flags, and reports whether they may make a
// namespace.
func (r *reports) clone3(e *kernel.Event, p *process, n *notification) bool {
	var b [8]byte
	read := p.read(b[:], n.args[0])
	if !read {
		e.Marks |= schema.MarkUnreadable
	}
	n.args[0] = le.Uint64(b[:])
	return !read || n.args[0]&newNamespaces != 0
}

// openHow reads a struct open_how (openat2(2)).
func (r *reports) openHow(e *kernel.Event, p *process, at, size uint64) {
	var how [24]byte
	if size < 24 || !p.read(how[:], at) {
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Flags, e.Mode, e.Resolve = le.Uint64(how[0:]), uint32(le.Uint64(how[8:])), le.Uint64(how[16:])&math.MaxUint32
}

// unknown counts a call of another instruction set. It reports the first call of each
// number in each process.
func (r *reports) unknown(p *process, n *notification) {
	key := foreignCall{p.pid, p.start, n.arch, n.nr}
	if r.foreign[key] || len(r.foreign) >= maxForeign {
		r.events.tally.filter(kernel.HookUnmodelled)
		return
	}
	r.foreign[key] = true
	e := r.events.begin(schema.KindCompatSyscall, kernel.HookUnmodelled, p, n.pid)
	e.Syscall = foreignName(n.arch, n.nr)
	e.Call = e.Syscall
	r.events.emit(e)
}
