//go:build linux && amd64

package truthtest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// A fact is one thing that happened, as text, and who did it.
type fact struct {
	who
	text string
}

// who is a process instance: the process and how many programs it has executed.
type who struct{ pid, execs int }

// facts counts how often each happened.
type facts map[fact]uint64

func (f facts) add(by who, kind string, words ...string) { f.addTimes(1, by, kind, words...) }

// addTimes says that something happened n times. All words but the last one can
// be anything and are quoted.
func (f facts) addTimes(n uint64, by who, kind string, words ...string) {
	var b strings.Builder
	b.WriteString(kind)
	for i, w := range words {
		if i < len(words)-1 {
			w = strconv.Quote(w)
		}
		b.WriteString(" " + w)
	}
	f[fact{by, b.String()}] += n
}

// traceFacts says what the calls of a trace did. The first process starts in dir.
func traceFacts(calls []*call, ends []ending, dir string) (facts, error) {
	r := &resolver{group: map[int]int{}, cwd: map[int]*string{}, execs: map[int]int{}, links: map[string]string{},
		files: map[int]map[int]string{}}
	f := facts{}
	// A child's calls may stand before the line that tells of its birth.
	births := map[int]*call{}
	for _, c := range calls {
		switch c.name {
		case "fork", "vfork", "clone", "clone3":
			if c.errno() == "" {
				births[c.child()] = c
			}
		}
	}
	sort.SliceStable(calls, func(i, j int) bool { return calls[i].line < calls[j].line })
	var born func(tid int) error
	born = func(tid int) error {
		if r.group[tid] != 0 {
			return nil
		}
		c := births[tid]
		if c == nil {
			if len(r.group) > 0 {
				return fmt.Errorf("nobody made thread %d", tid)
			}
			first := dir
			r.group[tid], r.cwd[tid] = tid, &first
			return nil
		}
		if err := born(c.tid); err != nil {
			return err
		}
		flags := cloneFlags(c)
		r.group[tid], r.cwd[tid] = tid, r.cwd[c.tid]
		if flags&cloneThread != 0 {
			r.group[tid] = r.group[c.tid]
		} else {
			f.add(who{pid: tid}, "fork", fmt.Sprint("of ", r.group[c.tid]))
		}
		if flags&cloneFS == 0 {
			own := *r.cwd[c.tid]
			r.cwd[tid] = &own
		}
		return nil
	}
	for _, c := range calls {
		if err := born(c.tid); err != nil {
			return nil, err
		}
		switch c.name {
		case "fork", "vfork", "clone", "clone3":
			if c.errno() == "" {
				if err := born(c.child()); err != nil {
					return nil, err
				}
			}
			continue
		}
		if err := r.call(f, c); err != nil {
			return nil, fmt.Errorf("line %d: %s%q: %w", c.line, c.name, c.args, err)
		}
	}
	for _, e := range ends {
		if r.group[e.tid] == e.tid {
			f.add(who{e.tid, r.execs[e.tid]}, "exit", e.how)
		}
	}
	return f, nil
}

const atSymlinkNofollow = 0x100

// openCreates are O_CREAT and __O_TMPFILE: the mode argument counts.
const openCreates = 0o100 | 0o20000000

func (r *resolver) call(f facts, c *call) error {
	errno, by := c.errno(), r.who(c)
	if errno == "?" && c.name != "execve" {
		return nil
	}
	named := func(kind string, dfd, i int, more ...string) {
		if p, ok := r.path(c, dfd, i); ok {
			f.add(by, kind, append(append([]string{p}, more...), result(errno))...)
		}
	}
	// What a call changes through a link that its name ends in.
	followed := func(kind string, dfd, i int, more ...string) {
		if p, ok := r.path(c, dfd, i); ok {
			f.add(by, kind, append(append([]string{r.target(by.pid, p)}, more...), result(errno))...)
		}
	}
	twice := func(kind string, d1, p1, d2, p2 int) {
		a, ok1 := r.path(c, d1, p1)
		b, ok2 := r.path(c, d2, p2)
		if ok1 && ok2 {
			f.add(by, kind, a, b, result(errno))
			if to, link := r.links[a]; link && errno == "" {
				r.links[b] = to
				if kind == "rename" {
					delete(r.links, a)
				}
			}
		}
	}
	arg := func(i int) uint64 {
		if i < len(c.args) {
			return number(c.args[i])
		}
		return 0
	}
	switch c.name {
	case "open", "openat", "openat2", "creat":
		dfd, at, flags, mode := 0, 1, arg(2), arg(3)
		switch c.name {
		case "open":
			dfd, at, flags, mode = -1, 0, arg(1), arg(2)
		case "creat":
			dfd, at, flags, mode = -1, 0, 0o1101, arg(1)
		case "openat2":
			how := fields(c.args[2])
			flags, mode = number(how["flags"]), number(how["mode"])
		}
		if flags&openCreates == 0 {
			mode = 0
		}
		words := []string{fmt.Sprintf("flags=%#x mode=%#o", flags, mode)}
		if errno != "" {
			named("open", dfd, at, words...)
			break
		}
		_, p, deleted := descriptor(c.ret)
		if deleted {
			words = append(words, "deleted")
		}
		f.add(by, "open", append(append([]string{p}, words...), result(""))...)
		if fd, _, _ := descriptor(c.ret); r.files[by.pid] == nil {
			r.files[by.pid] = map[int]string{fd: p}
		} else {
			r.files[by.pid][fd] = p
		}
	case "execve", "execveat":
		at, dfd, argv := 0, -1, 1
		if c.name == "execveat" {
			at, dfd, argv = 1, 0, 2
		}
		if errno != "" && errno != "?" {
			named("exec_failed", dfd, at)
			break
		}
		name, _ := str(c.args[at])
		p, _ := r.path(c, dfd, at)
		exe, args := image(p, name, list(c.args[argv]))
		r.execs[by.pid]++
		by.execs++
		f.add(by, "exec", exe, fmt.Sprintf("%q", args))
	case "rename":
		twice("rename", -1, 0, -1, 1)
	case "renameat", "renameat2":
		twice("rename", 0, 1, 2, 3)
	case "link":
		twice("link", -1, 0, -1, 1)
	case "linkat":
		twice("link", 0, 1, 2, 3)
	case "unlink", "rmdir":
		named(c.name, -1, 0)
		if p, ok := r.path(c, -1, 0); ok && errno == "" {
			delete(r.links, p)
		}
	case "unlinkat":
		if p, ok := r.path(c, 0, 1); ok && errno == "" {
			defer delete(r.links, p)
		}
		kind := "unlink"
		if arg(2)&0x200 != 0 {
			kind = "rmdir"
		}
		named(kind, 0, 1)
	case "mkdir":
		named("mkdir", -1, 0, fmt.Sprintf("mode=%#o", arg(1)))
	case "mkdirat":
		named("mkdir", 0, 1, fmt.Sprintf("mode=%#o", arg(2)))
	case "symlink", "symlinkat":
		dfd, at := -1, 1
		if c.name == "symlinkat" {
			dfd, at = 1, 2
		}
		if to, ok := str(c.args[0]); ok {
			named("symlink", dfd, at, to)
			if p, ok := r.path(c, dfd, at); ok && errno == "" {
				r.links[p] = to
			}
		}
	case "chmod":
		followed("chmod", -1, 0, fmt.Sprintf("mode=%#o", arg(1)))
	case "fchmodat", "fchmodat2":
		if len(c.args) > 3 && arg(3)&atSymlinkNofollow != 0 {
			named("chmod", 0, 1, fmt.Sprintf("mode=%#o", arg(2)))
		} else {
			followed("chmod", 0, 1, fmt.Sprintf("mode=%#o", arg(2)))
		}
	case "truncate":
		followed("truncate", -1, 0, fmt.Sprintf("length=%d", arg(1)))
	case "mknod":
		named("mknod", -1, 0, fmt.Sprintf("mode=%#o", arg(1)))
	case "mknodat":
		named("mknod", 0, 1, fmt.Sprintf("mode=%#o", arg(2)))
	case "chown":
		followed("chown", -1, 0, owner(arg(1), arg(2)))
	case "lchown":
		named("chown", -1, 0, owner(arg(1), arg(2)))
	case "fchownat":
		if arg(4)&atSymlinkNofollow != 0 {
			named("chown", 0, 1, owner(arg(2), arg(3)))
		} else {
			followed("chown", 0, 1, owner(arg(2), arg(3)))
		}
	case "fchown":
		r.onFD(f, c, "chown", owner(arg(1), arg(2)))
	case "setxattr", "removexattr":
		key, _ := str(c.args[1])
		followed(c.name, -1, 0, key)
	case "lsetxattr", "lremovexattr":
		key, _ := str(c.args[1])
		named(c.name[1:], -1, 0, key)
	case "fsetxattr", "fremovexattr":
		key, _ := str(c.args[1])
		r.onFD(f, c, c.name[1:], key)
	case "utimensat":
		if c.args[1] == "NULL" {
			r.onFD(f, c, "utime", "")
		} else if arg(3)&atSymlinkNofollow != 0 {
			named("utime", 0, 1, "")
		} else {
			followed("utime", 0, 1, "")
		}
	case "fallocate":
		r.onFD(f, c, "truncate", fmt.Sprintf("fallocate=%d", []uint64{arg(1), arg(2), arg(3)}))
	case "fchmod":
		r.onFD(f, c, "chmod", fmt.Sprintf("mode=%#o", arg(1)))
	case "ftruncate":
		r.onFD(f, c, "truncate", fmt.Sprintf("length=%d", arg(1)))
	case "chdir", "fchdir":
		p := ""
		if c.name == "chdir" {
			p, _ = r.path(c, -1, 0)
		} else {
			_, p, _ = descriptor(c.args[0])
		}
		if errno == "" {
			p = resolve(p)
			*r.cwd[c.tid] = p
		}
		f.add(by, "chdir", p, result(errno))
	case "connect", "bind":
		if a := r.address(c.args[1], *r.cwd[c.tid]); a != "" {
			f.add(by, c.name, a, result(errno))
		}
	}
	return nil
}

func (r *resolver) onFD(f facts, c *call, kind, what string) {
	_, p, deleted := descriptor(c.args[0])
	if p == "" {
		return
	}
	words := []string{p, what}
	if deleted {
		words = append(words, "deleted")
	}
	f.add(r.who(c), kind, append(words, result(c.errno()))...)
}

func owner(uid, gid uint64) string {
	return fmt.Sprintf("owner=%d:%d", int32(uid), int32(gid)) // -1 leaves as it is
}

func result(errno string) string {
	if errno == "" {
		return "= ok"
	}
	if errno == "EOPNOTSUPP" { // 95 has two names
		errno = "ENOTSUP"
	}
	return "= " + errno
}
