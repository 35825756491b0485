package layer

import (
	"hash/maphash"
	"unicode/utf8"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// kinds maps the observer's kinds to those of the layer.
var kinds = [...]schema.KernelKind{
	kernel.KindExec: schema.KindExec, kernel.KindExecFailed: schema.KindExecFailed, kernel.KindFork: schema.KindFork,
	kernel.KindExit: schema.KindExit, kernel.KindOpen: schema.KindOpen, kernel.KindWrite: schema.KindWrite,
	kernel.KindMmap: schema.KindMmapShared, kernel.KindRename: schema.KindRename, kernel.KindUnlink: schema.KindUnlink,
	kernel.KindRmdir: schema.KindRmdir, kernel.KindLink: schema.KindLink, kernel.KindSymlink: schema.KindSymlink,
	kernel.KindMkdir: schema.KindMkdir, kernel.KindMknod: schema.KindMknod, kernel.KindTruncate: schema.KindTruncate,
	kernel.KindChmod: schema.KindChmod, kernel.KindChown: schema.KindChown, kernel.KindSetxattr: schema.KindSetxattr,
	kernel.KindRemovexattr: schema.KindRemovexattr, kernel.KindChdir: schema.KindChdir, kernel.KindChroot: schema.KindChroot,
	kernel.KindConnect: schema.KindConnect, kernel.KindBind: schema.KindBind, kernel.KindListen: schema.KindListen,
	kernel.KindAccept: schema.KindAccept, kernel.KindSend: schema.KindSendto, kernel.KindDNS: schema.KindDNS,
	kernel.KindTLSHello: schema.KindTLS, kernel.KindTraffic: schema.KindFlow, kernel.KindSetID: schema.KindSetID,
	kernel.KindCapset: schema.KindCapset, kernel.KindPtrace: schema.KindPtrace, kernel.KindMount: schema.KindMount,
	kernel.KindNamespace: schema.KindNamespace, kernel.KindBPF: schema.KindBPF, kernel.KindMemfd: schema.KindMemfd,
	kernel.KindModule: schema.KindModule, kernel.KindIOUring: schema.KindIOUring, kernel.KindIOUringOp: schema.KindIOUringOp,
	kernel.KindLeftCgroup: schema.KindLeave, kernel.KindJoinedCgroup: schema.KindJoin, kernel.KindCompat: schema.KindCompatSyscall,
	kernel.KindUtime: schema.KindUtime, kernel.KindConnectResult: schema.KindConnectResult,
	kernel.KindPrivileged: schema.KindPrivileged, kernel.KindNewSocket: schema.KindSocket, kernel.KindSignal: schema.KindSignal,
}

// convert fills b.out from ev, whose process is p; begin has been called.
func (b *Builder) convert(ev *kernel.Event, p *process) {
	e := &b.out
	if int(ev.Kind) < len(kinds) {
		e.Kind = kinds[ev.Kind]
	}
	e.Value, e.Target = b.paths.get(ev.Path), string(ev.Path2)
	e.Given, e.TargetGiven = string(ev.Given), string(ev.Given2)
	e.UserMemory, e.Claimed, e.Attempted = ev.PathSource == kernel.PathUserMemory, ev.Claimed, ev.Attempted
	e.Marks = marks(ev)
	if ev.Truncated {
		e.Truncated |= schema.FieldValue
		if len(ev.Path2) > 0 {
			e.Truncated |= schema.FieldTarget
		}
	}
	e.Flags = ev.Flags
	if ev.Syscall != "" && !ev.NoResult {
		e.HasResult, e.Result = true, int64(ev.Ret)
		if ev.Errno != 0 {
			e.Result = -int64(ev.Errno)
		}
	}
	if ev.Syscall == "io_uring" {
		e.Call = ev.Syscall
	}
	switch ev.Kind {
	case kernel.KindOpen:
		e.Mode, e.Resolve, e.Created = ev.Mode, uint64(ev.Resolve), ev.Created
	case kernel.KindMkdir, kernel.KindMknod, kernel.KindChmod:
		e.Mode = ev.Mode
		if t := ev.Mode & 0o170000; ev.Kind == kernel.KindMknod && (t == 0o20000 || t == 0o60000) {
			e.Args = b.arg(ev.Args[0]) // the device
		}
	case kernel.KindTruncate:
		e.Args = b.arg(ev.Bytes)
		if ev.Syscall == "fallocate" || ev.Syscall == "io_uring" && ev.Args != [6]uint64{} {
			e.Call, e.Args = "fallocate", b.arg(ev.Args[:3]...)
		}
	case kernel.KindChown:
		e.Args = b.arg(uint64(ev.UID), uint64(ev.GID))
	case kernel.KindSetxattr, kernel.KindRemovexattr:
		e.Target = string(ev.Name)
	case kernel.KindWrite:
		e.BytesOut, e.HasResult = ev.Bytes, ev.Errno != 0
	case kernel.KindFork:
		b.fork(ev)
	case kernel.KindExec, kernel.KindExecFailed:
		b.exec(ev, p)
	case kernel.KindExit:
		e.WaitStatus = uint32(ev.ExitCode&0xff) << 8
		if ev.Signal != 0 {
			e.WaitStatus = uint32(ev.Signal & 0x7f)
			if ev.Core {
				e.WaitStatus |= 0x80
			}
		}
	case kernel.KindConnect, kernel.KindSend, kernel.KindBind, kernel.KindListen, kernel.KindAccept, kernel.KindTraffic, kernel.KindConnectResult:
		b.network(ev)
	case kernel.KindDNS:
		b.dns(ev)
	case kernel.KindTLSHello:
		b.tls(ev)
	case kernel.KindLeftCgroup, kernel.KindJoinedCgroup:
		e.PPID, e.CgroupID, e.Value = ev.PPID, ev.CgroupID, string(ev.Name)
	case kernel.KindIOUringOp:
		e.Args = b.arg(ev.Args[0])
	case kernel.KindCompat:
		e.Call = ev.Syscall
	case kernel.KindSignal:
		e.Value, e.Args = schema.SignalName(uint32(ev.Args[1])), b.arg(ev.Args[:2]...)
	case kernel.KindSetID, kernel.KindCapset, kernel.KindPtrace, kernel.KindMount, kernel.KindNamespace, kernel.KindBPF,
		kernel.KindMemfd, kernel.KindModule, kernel.KindIOUring, kernel.KindPrivileged, kernel.KindNewSocket:
		e.Call = ev.Syscall
		e.Args = b.arg(ev.Args[:]...)
		if len(ev.Name) > 0 {
			e.Target = string(ev.Name)
		}
	}
}

func marks(ev *kernel.Event) (m schema.Marks) {
	if ev.Deleted {
		m |= schema.MarkDeleted
	}
	if ev.Memfd {
		m |= schema.MarkMemfd
	}
	if ev.RelativePath {
		m |= schema.MarkRelative
	}
	if ev.Unreachable {
		m |= schema.MarkUnreachable
	}
	if ev.Unreadable {
		m |= schema.MarkUnreadable
	}
	if ev.Unresolved {
		m |= schema.MarkUnresolved
	}
	return m
}

// arg returns args in memory that the next event reuses, without the zeroes
// at the end.
func (b *Builder) arg(args ...uint64) []uint64 {
	n := copy(b.args[:], args)
	for n > 1 && b.args[n-1] == 0 {
		n--
	}
	return b.args[:n:n]
}

// fork makes the event the child's own.
func (b *Builder) fork(ev *kernel.Event) {
	e := &b.out
	if ev.Thread {
		b.procs.thread(ev.ChildTID)
		e.Kind, e.TID = schema.KindThread, ev.ChildTID
		return
	}
	e.PID, e.TID, e.PPID, e.CgroupID = ev.ChildPID, ev.ChildPID, ev.PID, ev.ChildCgroupID
}

// exec begins a new instance of p, or reports the call that did not.
func (b *Builder) exec(ev *kernel.Event, p *process) {
	e := &b.out
	n := len(ev.Argv)
	b.texts = b.texts[:0]
	for _, a := range ev.Argv {
		b.texts = append(b.texts, string(a))
	}
	for _, k := range ev.EnvKeys {
		b.texts = append(b.texts, string(k))
	}
	if ev.Argv != nil || ev.Kind == kernel.KindExec {
		e.Argv = b.texts[:n:n]
	}
	if ev.ArgvTruncated {
		e.Truncated |= schema.FieldArgv
	}
	if ev.CwdTruncated {
		e.Truncated |= schema.FieldCwd
	}
	if ev.EnvTruncated {
		e.Truncated |= schema.FieldEnvKeys
	}
	if ev.Kind == kernel.KindExecFailed {
		return
	}
	e.EnvKeys = b.texts[n:]
	e.Value, e.Cwd = string(ev.Exe), string(ev.Cwd)
	if f := string(ev.Filename); f != e.Value {
		e.Target = f
	}
	e.PPID, e.CgroupID = ev.PPID, ev.CgroupID
	if ev.OldTID != 0 {
		e.TID = ev.OldTID
	}
	e.ParentExecID, p.execID = p.execID, b.procs.nextID()
	e.ExecID = p.execID
	p.exe, p.hook = e.Value, b.o.Hook != nil && b.o.Hook(ev)
	p.starting = p.starting && b.o.Shim != nil && string(ev.Filename) == "/proc/self/exe" && b.o.Shim(e.Argv)
	if id := string(ev.ToolCallID); id != "" && utf8.ValidString(id) {
		p.toolCall, p.boundBy = id, "env"
	} else if p.toolCall != "" {
		p.boundBy = "lineage"
	}
	e.ToolCallID, e.BoundBy = p.toolCall, p.boundBy
}

// stringCache spares a copy of a path that was used a moment ago.
type stringCache [512]string

var stringSeed = maphash.MakeSeed()

func (c *stringCache) get(p []byte) string {
	if len(p) == 0 || len(p) > 256 {
		return string(p)
	}
	s := &c[maphash.Bytes(stringSeed, p)%uint64(len(c))]
	if *s != string(p) {
		*s = string(p)
	}
	return *s
}
