//go:build amd64 || arm64

package notify

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// names reads the names in a call: from the caller's memory, and from /proc what they are relative to.
type names struct {
	table   *table
	last    []byte // the last path, as it was read
	joined  []byte // and made absolute
	other   []byte // the last string that is not a path
	linkBuf [maxPath]byte
}

func newNames(table *table) *names { return &names{table: table} }

// renew gives up the memory that a read which got stuck may still write to.
func (s *names) renew() { s.last, s.other = nil, nil }

// text reads a string that is not a path.
func (s *names) text(e *kernel.Event, p *process, at uint64) {
	if at == 0 {
		return
	}
	b, cut, ok := p.text(s.other[:0], at, maxPath)
	s.other = b
	e.Target = string(b)
	if cut {
		e.Truncated |= schema.FieldValue
	}
	if !ok {
		e.Marks |= schema.MarkUnreadable
	}
}

// onDescriptor sets the path of what a descriptor refers to.
func (s *names) onDescriptor(e *kernel.Event, p *process, fd int32) {
	name, ok := s.link(p, fdName(fd))
	if !ok {
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Value = deleted(e, name)
}

// path reads the name at an address and makes it absolute as the kernel would, in the
// process's root and working directory. It does not resolve symbolic links, or a ".."
// after a name. given is the name itself if it contains "..", else empty.
func (s *names) path(e *kernel.Event, p *process, dirfd int32, at uint64) (path, given string) {
	if at == 0 {
		return "", "" // utimensat on a descriptor; the kernel refuses it in other calls
	}
	name, cut, ok := p.text(s.last[:0], at, maxPath)
	s.last = name
	if cut {
		e.Truncated |= schema.FieldValue
	}
	e.UserMemory = ok
	if !ok {
		e.Marks |= schema.MarkUnreadable
		return "", ""
	}
	base := ""
	if len(name) == 0 || name[0] != '/' {
		what := "cwd"
		if dirfd != unix.AT_FDCWD {
			what = fdName(dirfd)
		}
		if base, ok = s.link(p, what); !ok || base == "" || base[0] != '/' {
			e.Marks |= schema.MarkRelative
			return string(name), ""
		}
		if trimmed, gone := strings.CutSuffix(base, " (deleted)"); gone {
			base = trimmed
			e.Marks |= schema.MarkUnresolved
		}
	} else {
		base = s.rootOf(p)
	}
	path = s.join(e, base, name)
	if bytes.Contains(name, []byte("..")) {
		given = string(name)
	}
	return path, given
}

// join makes a name absolute. A ".." that it leaves marks e.
func (s *names) join(e *kernel.Event, base string, name []byte) string {
	dst, unresolved := join(append(s.joined[:0], base...), name)
	s.joined = dst
	if unresolved {
		e.Marks |= schema.MarkUnresolved
	}
	return string(dst)
}

// rootOf is the directory that p's absolute paths begin at. It is empty for the root of
// p's mount namespace.
func (s *names) rootOf(p *process) string {
	t := s.table
	if p.atRoot == t.roots {
		return ""
	}
	root, ok := s.link(p, "root")
	if ok && root != "/" {
		return root // and look it up each time: somebody may rename it
	}
	if ok && !t.rootsChange() {
		p.atRoot = t.roots
	}
	return ""
}

// unixName is the name of a unix socket (unix(7)).
func (s *names) unixName(e *kernel.Event, p *process, name []byte) string {
	if len(name) == 0 {
		return ""
	}
	if name[0] == 0 {
		return "@" + string(name[1:])
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	base := s.rootOf(p)
	if len(name) > 0 && name[0] != '/' {
		var ok bool
		if base, ok = s.link(p, "cwd"); !ok || base == "" || base[0] != '/' {
			e.Marks |= schema.MarkRelative
			return string(name)
		}
	}
	return s.join(e, base, name)
}

// link reads a link in the /proc/PID of p.
func (s *names) link(p *process, name string) (string, bool) {
	n, err := unix.Readlinkat(p.dir, name, s.linkBuf[:])
	if err != nil || n <= 0 {
		return "", false
	}
	return string(s.linkBuf[:n]), true
}

// deleted is a name of /proc without what it says of a file that has no name any more; e is marked.
func deleted(e *kernel.Event, name string) string {
	name, gone := strings.CutSuffix(name, " (deleted)")
	if gone {
		e.Marks |= schema.MarkDeleted
	}
	return name
}

func fdName(fd int32) string { return "fd/" + strconv.Itoa(int(fd)) }
