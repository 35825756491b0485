//go:build amd64 || arm64

package notify

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// maxPath is the kernel's PATH_MAX, with the NUL.
const maxPath = 4096

// foreignCall is a call of another instruction set by one process.
type foreignCall struct {
	pid   uint32
	start uint64
	arch  uint32
	nr    int32
}

// maxForeign bounds how many such calls are reported.
const maxForeign = 4096

func foreignName(arch uint32, nr int32) string {
	if arch == auditArch {
		return fmt.Sprintf("x32:%d", nr&^x32Bit)
	}
	return fmt.Sprintf("compat:%d", nr)
}

// call reports a system call that is about to be made.
func (o *Observer) call(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	if call.Name == "clone3" {
		if !o.clone3(e, p, n) {
			o.filtered[call.Hook]++
			return
		}
	}
	call.Arguments(e, n.args, compat)
	switch call.Kind {
	case kernel.KindConnect, kernel.KindBind, kernel.KindSend:
		o.socket(e, p, n, call, compat)
		return
	case kernel.KindListen:
		o.listens(e, p, n)
		return
	case kernel.KindNewSocket:
		e.Args = [6]uint64{n.args[0], n.args[1], n.args[2]}
	case kernel.KindChroot, kernel.KindMount, kernel.KindNamespace:
		o.table.roots++ // the call may change a root: look it up again
		o.table.changing[n.pid] = p
	}
	if call.Text != kernel.NoArg {
		o.text(e, p, n.args[call.Text])
	}
	if call.FD != kernel.NoArg {
		o.onDescriptor(e, p, int32(n.args[call.FD]))
	}
	if call.Path != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd])
		}
		e.Path, e.Given = o.path(e, p, dirfd, n.args[call.Path], 0)
	}
	if call.Path2 != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd2 != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd2])
		}
		e.Path2, e.Given2 = o.path(e, p, dirfd, n.args[call.Path2], 1)
	}
	switch {
	case call.Name == "openat2":
		o.openHow(e, p, n.args[2], n.args[3])
	case call.Kind == kernel.KindSymlink:
		e.Path2, e.Name = e.Name, nil
	case call.Kind == kernel.KindMemfd:
		e.Path, e.Name, e.PathSource = e.Name, nil, kernel.PathUserMemory
	}
	if e.Unreadable {
		o.unreadable++
	}
	o.emit(e)
}

// denied reports a call that the observer refuses with EPERM.
func (o *Observer) denied(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	call.Arguments(e, n.args, compat)
	e.NoResult, e.Attempted, e.Ret, e.Errno = false, false, -int32(unix.EPERM), int32(unix.EPERM)
	o.emit(e)
}

// clone3 replaces the address of a struct clone_args by its flags. It returns false if
// the flags make no namespace.
func (o *Observer) clone3(e *kernel.Event, p *process, n *notification) bool {
	var b [8]byte
	e.Unreadable = !p.read(b[:], n.args[0])
	n.args[0] = le.Uint64(b[:])
	return e.Unreadable || n.args[0]&newNamespaces != 0
}

// openHow reads a struct open_how (openat2(2)).
func (o *Observer) openHow(e *kernel.Event, p *process, at, size uint64) {
	var how [24]byte
	if size < 24 || !p.read(how[:], at) {
		e.Unreadable = true
		return
	}
	e.Flags, e.Mode, e.Resolve = le.Uint64(how[0:]), uint32(le.Uint64(how[8:])), uint32(le.Uint64(how[16:]))
}

// text reads a string that is not a path.
func (o *Observer) text(e *kernel.Event, p *process, at uint64) {
	if at == 0 {
		return
	}
	b, cut, ok := p.text(o.text1[:0], at, maxPath)
	o.text1 = b
	e.Name, e.Truncated = b, e.Truncated || cut
	e.Unreadable = e.Unreadable || !ok
}

// onDescriptor sets the path of what a descriptor refers to.
func (o *Observer) onDescriptor(e *kernel.Event, p *process, fd int32) {
	name, ok := o.link(p, fdName(fd))
	if !ok {
		e.Unreadable = true
		return
	}
	name, e.Deleted = strings.CutSuffix(name, " (deleted)")
	e.Path, e.PathSource = append(o.paths[0][:0], name...), kernel.PathKernelObject
	o.paths[0] = e.Path
}

// path reads the name at an address and makes it absolute as the kernel would, in the
// process's root and working directory. It does not resolve symbolic links, or a ".."
// after a name. given is the name itself if it contains "..", else nil. The results are
// valid until the buffers i are used again.
func (o *Observer) path(e *kernel.Event, p *process, dirfd int32, at uint64, i int) (path, given []byte) {
	if at == 0 {
		return nil, nil // utimensat on a descriptor; the kernel refuses it in other calls
	}
	name, cut, ok := p.text(o.names[i][:0], at, maxPath)
	o.names[i] = name
	e.Truncated = e.Truncated || cut
	e.PathSource = kernel.PathUserMemory
	if !ok {
		e.Unreadable, e.PathSource = true, kernel.PathNone
		return nil, nil
	}
	base := ""
	if len(name) == 0 || name[0] != '/' {
		what := "cwd"
		if dirfd != unix.AT_FDCWD {
			what = fdName(dirfd)
		}
		if base, ok = o.link(p, what); !ok || base == "" || base[0] != '/' {
			e.RelativePath = true
			return name, nil
		}
		if trimmed, gone := strings.CutSuffix(base, " (deleted)"); gone {
			base, e.Unresolved = trimmed, true
		}
	} else {
		base = o.rootOf(p)
	}
	dst, unresolved := join(append(o.paths[i][:0], base...), name)
	o.paths[i] = dst
	e.Unresolved = e.Unresolved || unresolved
	if bytes.Contains(name, []byte("..")) {
		given = name
	}
	return dst, given
}

// join appends the parts of name to an absolute path that the kernel returned. A ".."
// before any name leads to the path's parent. A ".." after a name stays as it is, since
// the name may be a symbolic link.
func join(dst, name []byte) (path []byte, unresolved bool) {
	if len(dst) == 1 {
		dst = dst[:0] // the root
	}
	named := false
	for len(name) > 0 {
		part, rest, _ := bytes.Cut(name, []byte{'/'})
		name = rest
		switch {
		case len(part) == 0, string(part) == ".":
			continue
		case string(part) == ".." && !named:
			dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
			continue
		case string(part) == "..":
			unresolved = true
		}
		named = true
		dst = append(append(dst, '/'), part...)
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst, unresolved
}
