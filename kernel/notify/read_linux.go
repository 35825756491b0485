//go:build amd64 || arm64

package notify

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

const pageSize = 4096 // the smallest page size: no read crosses the end of a page

// text appends the string at an address of p, without its NUL. cut reports that the
// string, with its NUL, is longer than limit bytes.
func (p *process) text(dst []byte, at uint64, limit int) (text []byte, cut, ok bool) {
	start := len(dst)
	for chunk := 256; ; chunk = pageSize {
		n := min(chunk, int(pageSize-at%pageSize), limit-(len(dst)-start))
		if n <= 0 {
			return dst, true, true
		}
		from := len(dst)
		dst = append(dst, make([]byte, n)...)
		got, err := p.memory(dst[from:], at)
		if err != nil || got <= 0 {
			return dst[:from], false, false
		}
		if end := bytes.IndexByte(dst[from:from+got], 0); end >= 0 {
			return dst[:from+end], false, true
		}
		dst = dst[:from+got]
		at += uint64(got)
	}
}

// memory reads from an address of p, as far as the kernel does at once.
func (p *process) memory(b []byte, at uint64) (int, error) {
	if p.unreadable() {
		return 0, unix.ETIMEDOUT
	}
	began := p.reads.begin()
	n, err := unix.Pread(p.mem, b, int64(at))
	p.reads.end(began)
	return n, err
}

// memoryFile reads a file in the /proc/PID of p that shows what is in its memory.
func (p *process) memoryFile(name string, buf []byte) []byte {
	if p.unreadable() {
		return nil
	}
	began := p.reads.begin()
	b := readAt(p.dir, name, buf)
	p.reads.end(began)
	return b
}

// unreadable reports whether a read of p's memory must not be tried.
func (p *process) unreadable() bool { return p.silent || p.reads.refused }

// read fills b from an address of p.
func (p *process) read(b []byte, at uint64) bool {
	for len(b) > 0 {
		n, err := p.memory(b, at)
		if err != nil || n <= 0 {
			return false
		}
		b, at = b[n:], at+uint64(n)
	}
	return true
}

// link reads a link in the /proc/PID of p.
func (o *Observer) link(p *process, name string) (string, bool) {
	n, err := unix.Readlinkat(p.dir, name, o.linkBuf[:])
	if err != nil || n <= 0 {
		return "", false
	}
	return string(o.linkBuf[:n]), true
}

func fdName(fd int32) string { return "fd/" + strconv.Itoa(int(fd)) }
