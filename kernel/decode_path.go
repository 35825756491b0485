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
		e.Path = d.path[0]
		e.Memfd = isMemfd(e)
		e.Name = r.seg[segName]
		return
	}
	e.Name = r.seg[segName]
	if e.Kind == KindMemfd {
		e.Path, e.Name = e.Name, nil
		e.PathSource = PathUserMemory
		return
	}
	if e.Kind == KindIOUringOp {
		e.Args[0] = r.arg(0)
	}
	if d.named(r.seg[segPath], r.seg[segBase]) {
		d.path[0] = d.join(d.path[0][:0], r.seg[segBase], r.seg[segRoot], r.seg[segPath])
		e.Path = d.path[0]
	}
	if d.named(r.seg[segPath2], r.seg[segBase2]) {
		d.path[1] = d.join(d.path[1][:0], r.seg[segBase2], r.seg[segRoot], r.seg[segPath2])
		e.Path2 = d.path[1]
	}
	if e.Kind == KindSymlink {
		e.Path2, e.Name = e.Name, nil
	}
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

// resolveInRoot is RESOLVE_IN_ROOT of linux/openat2.h.
const resolveInRoot = 16

// join makes a name from user memory absolute and lexically clean. base is a
// walk of the directory it is relative to: the root for an absolute name. root
// is one of the caller's root where that is not the mount namespace's; ".." does
// not lead out of either, nor out of openat2's own root.
func (d *decoder) join(dst, base, root, name []byte) []byte {
	if d.ev.RelativePath && len(base) == 0 && (len(name) == 0 || name[0] != '/') {
		return append(dst, name...)
	}
	d.joinBuf = d.kernelPath(d.joinBuf[:0], base)
	n := len(d.joinBuf)
	keep := 0 // bytes that stay whatever name says
	if d.ev.Resolve&resolveInRoot != 0 || len(name) > 0 && name[0] == '/' {
		keep = n
	} else if len(root) > 0 {
		d.joinBuf = d.kernelPath(d.joinBuf, root)
		dir, root := d.joinBuf[:n], d.joinBuf[n:]
		if bytes.HasPrefix(dir, root) && (len(dir) == len(root) || dir[len(root)] == '/') {
			keep = len(root)
		}
	}
	if keep == 1 { // "/"
		keep = 0
	}
	d.joinBuf = append(append(d.joinBuf[:n], '/'), name...)
	dst = append(dst, d.joinBuf[:keep]...)
	start := len(dst)
	dst = clean(dst, d.joinBuf[keep:])
	if keep > 0 && len(dst) == start+1 {
		return dst[:start]
	}
	return dst
}

// clean appends the lexically shortest form of an absolute path, without
// allocating; path.Clean would on every path that is not clean already.
func clean(dst, p []byte) []byte {
	start := len(dst)
	for i := 0; i < len(p); {
		if p[i] == '/' {
			i++
			continue
		}
		j := i
		for j < len(p) && p[j] != '/' {
			j++
		}
		switch name := p[i:j]; {
		case len(name) == 1 && name[0] == '.':
		case len(name) == 2 && name[0] == '.' && name[1] == '.':
			if k := bytes.LastIndexByte(dst[start:], '/'); k >= 0 {
				dst = dst[:start+k]
			}
		default:
			dst = append(append(dst, '/'), name...)
		}
		i = j
	}
	if len(dst) == start {
		dst = append(dst, '/')
	}
	return dst
}
