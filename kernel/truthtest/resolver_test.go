//go:build linux && amd64

package truthtest

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
)

// resolver makes the paths of strace's arguments absolute. It follows the working
// directory of every process, since the old calls (rename, mkdir) take names
// relative to it and strace prints it with the *at calls only.
type resolver struct {
	group map[int]int            // tid to process
	cwd   map[int]*string        // tid to a directory, shared by CLONE_FS
	execs map[int]int            // process to the number of its execs so far
	links map[string]string      // symbolic links that the trace made: their content
	files map[int]map[int]string // process to what its descriptors were opened as
}

func (r *resolver) who(c *call) who {
	pid := r.group[c.tid]
	return who{pid, r.execs[pid]}
}

const (
	cloneFS     = 0x200
	cloneThread = 0x10000
)

// join is what the layer documents for names in the caller's memory: absolute,
// with ".." and symbolic links resolved in all parts but the last.
func (r *resolver) join(base, name string) string {
	if !strings.HasPrefix(name, "/") {
		name = base + "/" + name
	}
	name = strings.TrimRight(name, "/")
	dir, last := path.Split(name)
	if last == "." || last == ".." {
		dir, last = name, ""
	}
	return path.Clean(r.directory(dir, 40) + "/" + last)
}

// target is what a name leads to that path has made absolute, for a call that follows a
// link that the name ends in.
func (r *resolver) target(pid int, name string) string {
	if n, ok := strings.CutPrefix(name, "/proc/self/fd/"); ok {
		fd, err := strconv.Atoi(n)
		if p := r.files[pid][fd]; err == nil && p != "" {
			return p
		}
		return name
	}
	for range 40 {
		to, ok := r.links[name]
		if !ok && !strings.HasPrefix(name, "/proc/") {
			to, _ = os.Readlink(name)
		}
		if to == "" {
			break
		}
		name = r.join(path.Dir(name), to)
	}
	return name
}

// directory follows the links of the trace and those of the system.
func (r *resolver) directory(name string, links int) string {
	at := "/"
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		to, ok := r.links[next]
		if st, err := os.Lstat(next); !ok && err == nil && st.Mode()&os.ModeSymlink != 0 &&
			!strings.HasPrefix(next, "/proc/") {
			to, _ = os.Readlink(next)
			ok = true
		}
		if ok && links > 0 && part != "" && part != "." {
			if !path.IsAbs(to) {
				to = at + "/" + to
			}
			return r.directory(to+"/"+strings.Join(parts[i+1:], "/"), links-1)
		}
		at = next
	}
	return at
}

func cloneFlags(c *call) uint64 {
	switch c.name {
	case "clone":
		for _, a := range c.args {
			if v, ok := strings.CutPrefix(a, "flags="); ok {
				return number(v)
			}
		}
	case "clone3":
		s, _, _ := strings.Cut(c.args[0], " => ")
		return number(fields(s)["flags"])
	}
	return 0
}

// path makes the name at argument i absolute; dfd is the index of its directory
// or -1. ok is false for a name that is not readable memory.
func (r *resolver) path(c *call, dfd, i int) (string, bool) {
	if i >= len(c.args) {
		return "", false
	}
	name, ok := str(c.args[i])
	if !ok {
		return "", false
	}
	cwd := r.cwd[c.tid]
	base := *cwd
	if dfd >= 0 {
		fd, at, _ := descriptor(c.args[dfd])
		base = at
		if fd == -100 && at != "" { // AT_FDCWD, printed with the directory
			*cwd = at
		}
	}
	return r.join(base, name), true
}

// address is a sockaddr as the layer writes it, "" for the families outside of
// the agreed set. Under -X raw, numbers in it are bytes in network order.
func (r *resolver) address(s, cwd string) string {
	a := fields(s)
	text := func(key string) []byte {
		t, _ := str(a[key])
		return []byte(t)
	}
	port := func(key string) uint16 {
		if b := text(key); len(b) == 2 {
			return binary.BigEndian.Uint16(b)
		}
		return 0
	}
	switch number(a["sa_family"]) {
	case 1:
		if abstract, ok := strings.CutPrefix(a["sun_path"], "@"); ok {
			t, _ := str(abstract)
			return "unix:@" + t
		}
		if t, ok := str(a["sun_path"]); ok {
			return "unix:" + r.join(cwd, t)
		}
	case 2:
		ip, _ := netip.AddrFromSlice(text("sin_addr"))
		return netip.AddrPortFrom(ip, port("sin_port")).String()
	case 10:
		ip, _ := netip.AddrFromSlice(text("sin6_addr"))
		return netip.AddrPortFrom(ip.Unmap(), port("sin6_port")).String()
	}
	return ""
}
