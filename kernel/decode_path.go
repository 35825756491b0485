package kernel

import (
	"bytes"
	"fmt"
)

// file sets the paths of a record about files.
func (d *decoder) file(r *record, bits uint32) {
	e := &d.ev
	if bits&bitWalked != 0 {
		e.PathSource = PathKernelObject
		d.path[0] = d.kernelPath(d.path[0][:0], r.seg[segPath])
		e.Path = end(d.path[0], bits&bitTruncated)
		e.Memfd = isMemfd(e)
		if e.Unreachable && bytes.HasPrefix(e.Path, []byte("/[")) && e.Device != 0 && e.Device == anonymousDevice() {
			// As /proc/PID/fd shows it. It is no file below the root.
			d.path[0] = append([]byte("anon_inode:"), e.Path[1:]...)
			e.Path, e.Unreachable = d.path[0], false
		}
		e.Name = r.seg[segName]
		return
	}
	e.Name = r.seg[segName]
	if e.Kind == KindMemfd {
		e.Path, e.Name = e.Name, nil
		e.PathSource = PathUserMemory
		return
	}
	if d.named(r.seg[segPath], r.seg[segBase]) {
		d.path[0] = d.join(d.path[0][:0], r.seg[segBase], r.seg[segPath])
		e.Path, e.Given = end(d.path[0], bits&bitBaseCut), r.seg[segGiven]
	}
	if d.named(r.seg[segPath2], r.seg[segBase2]) {
		d.path[1] = d.join(d.path[1][:0], r.seg[segBase2], r.seg[segPath2])
		e.Path2, e.Given2 = end(d.path[1], bits&bitBaseCut), r.seg[segGiven2]
	}
	if e.Kind == KindSymlink {
		e.Path2, e.Name = e.Name, nil
	}
}

// end is what is kept of a path, which is its end where it was cut: no absolute
// path then.
func end(path []byte, cut uint32) []byte {
	if cut != 0 && len(path) > 1 {
		return path[1:]
	}
	return path
}

// named reports whether the event has a path that begins at base. The kernel says
// of a name that it could not read that the address is bad: base is not the path.
func (d *decoder) named(name, base []byte) bool {
	e := &d.ev
	if len(name) == 0 && len(base) > 0 && e.Errno == efault {
		e.Unreadable = true
		return false
	}
	if len(name) == 0 && len(base) == 0 {
		return false
	}
	e.PathSource = PathUserMemory
	return true
}

const efault = 14

func isMemfd(e *Event) bool {
	return e.Unreachable && bytes.HasPrefix(e.Path, []byte("/memfd:"))
}

// kernelPath turns a walk (names leaf first, each followed by '/') into an
// absolute path. Objects without a name (pipes, sockets) get the one that
// /proc/pid/fd shows.
func (d *decoder) kernelPath(dst, walk []byte) []byte {
	start := len(dst)
	for end := len(walk) - 1; end >= 0; {
		i := bytes.LastIndexByte(walk[:end], '/')
		if name := walk[i+1 : end]; len(name) > 0 {
			dst = append(append(dst, '/'), name...)
		}
		end = i
	}
	if len(dst) > start {
		return dst
	}
	e := &d.ev
	switch {
	case e.Unreachable && e.FileMode&0xf000 == 0x1000:
		return fmt.Appendf(dst, "pipe:[%d]", e.Inode)
	case e.Unreachable && e.FileMode&0xf000 == 0xc000:
		return fmt.Appendf(dst, "socket:[%d]", e.Inode)
	}
	return append(dst, '/')
}

// join makes what remains of a name absolute: base is a walk of the directory
// that it is in. A ".." that remains was not resolved, and is not guessed: it
// stays as it stands, and the event says so.
func (d *decoder) join(dst, base, name []byte) []byte {
	if d.ev.RelativePath && len(base) == 0 && (len(name) == 0 || name[0] != '/') {
		return append(dst, name...)
	}
	start := len(dst)
	if dst = d.kernelPath(dst, base); len(dst) == start+1 {
		dst = dst[:start] // the root
	}
	for len(name) > 0 {
		part, rest, _ := bytes.Cut(name, []byte{'/'})
		name = rest
		switch string(part) {
		case "", ".":
			continue
		case "..":
			d.ev.Unresolved = true
		}
		dst = append(append(dst, '/'), part...)
	}
	if len(dst) == start {
		dst = append(dst, '/')
	}
	return dst
}
