package surface

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
)

// What the capability surface makes of names that differ between two runs of
// the same workload. The layer always keeps the exact name. These rules look at
// the name alone, and at the pid of who used it:
//
//   - /proc/PID becomes /proc/self for the process itself and /proc/<pid> for
//     any other; below it, task/TID becomes task/<tid> and fd/N fd/<fd>;
//   - the process's own pid, where it is all the digits of a name or of a part
//     between other characters, is <pid>, and so it is as long as that file is
//     there;
//   - the recorder's own name for a run in the path of a cgroup is <run>, that of a
//     server of mcp <mcp>, of a check <check>;
//   - the address in the name of a lock file of GnuPG's is <address>;
//   - /dev/pts/N becomes /dev/pts/<n>, and a pipe or socket that was opened by
//     way of /proc/PID/fd loses its inode's number;
//   - below /tmp, /var/tmp and /dev/shm, and in git's own directories, a part that
//     the run did not make has its random piece replaced by <random> if a known
//     generator makes such names and the piece cannot be a word; the table is
//     generated;
//   - #N, as the kernel calls a file made with O_TMPFILE after its inode, becomes
//     #<random> where the file has no name.
//
// What the run made where there was nothing (see schema.KernelEvent.Makes), as mkstemp(3),
// mkdtemp(3) and the generators make it, has the random piece of its name replaced
// if it is gone in the end: the run removed it or gave it another name. A piece that
// may be a word, unless a known generator puts it behind a word of its own, or that
// an argument spelled before, is never random. See made.
//
// A UUID, a ULID, and in a program's own directory a date with a time of day, in a name
// that the run made is <random> also if it stays, unless an argument spelled it before.
// See byForm.
//
// Two entries can so fall together; none ever disappears.

// Path is a path as the surface has it when it is not the process's own: without
// what differs between two runs of the same workload.
func Path(path string) string { return normalizePath(path, 0) }

// normalizePath returns a path that the run did not make as the surface has it; pid
// is who used it.
func normalizePath(path string, pid uint32) string {
	path = plainPath(path, pid)
	return byName(path, 0, len(path))
}

// plainPath returns path without what is never of the file itself.
func plainPath(path string, pid uint32) string {
	if !utf8.ValidString(path) {
		path = escapeBytes(path)
	}
	switch {
	case strings.HasPrefix(path, "/proc/"):
		return normalizeProc(ownProc(path, pid))
	case strings.HasPrefix(path, "/dev/pts/") && isDigits(path[9:]):
		return "/dev/pts/<n>"
	case strings.HasPrefix(path, "/sys/fs/cgroup/"):
		return normalizeCgroup(path)
	case strings.Contains(path, "/.#lk0x"):
		return normalizeLock(path)
	case isInode(path, "pipe:["), isInode(path, "socket:["):
		return path[:strings.IndexByte(path, '[')] + "[<n>]"
	}
	return path
}

// temporaryDirs are those where a name is looked at that the run did not make.
var temporaryDirs = []string{"/tmp/", "/var/tmp/", "/dev/shm/"}

// byName replaces what is random by the look of it in the parts of path from one
// offset up to another: below a directory for temporary files, and in git's own.
func byName(path string, from, to int) string {
	from, to = max(from, 0), max(to, 0)
	git := strings.Index(path[:to], ".git/")
	switch {
	case below(temporaryDirs, path):
	case git >= 0:
		from = max(from, git)
	default:
		return path
	}
	if from >= to {
		return path
	}
	if git >= 0 && to == len(path) {
		if try := path[git+len(".git/"):]; len(try) == 7 && try[0] == 't' && strings.Trim(try[1:], alnum) == "" {
			path = path[:git] + ".git/t<random>" // git init tries whether there are symbolic links
			to = len(path)
		}
	}
	return path[:from] + normalizeTemp(path[from:to]) + path[to:]
}

// escapeBytes writes each byte that is not UTF-8 as \xHH.
func escapeBytes(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			const hex = "0123456789abcdef"
			b.WriteString(`\x`)
			b.WriteByte(hex[s[i]>>4])
			b.WriteByte(hex[s[i]&15])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// ownProc turns /proc/PID into /proc/self where PID is the process's own: the
// kernel's path of what was opened as /proc/self has the number.
func ownProc(path string, pid uint32) string {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok || pid == 0 || rest == "" || rest[0] < '1' || rest[0] > '9' {
		return path
	}
	num, tail, _ := cutSlash(rest)
	if n, err := strconv.ParseUint(num, 10, 32); err != nil || uint32(n) != pid {
		return path
	}
	return "/proc/self" + tail
}

// cutSlash cuts before the first slash: "a/b" is "a" and "/b".
func cutSlash(s string) (head, tail string, found bool) {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i:], true
	}
	return s, "", false
}

// normalizeCgroup replaces the names that the recorder gave runs, and the servers of mcp
// and the checks in them, which have sessions of their own.
func normalizeCgroup(path string) string {
	const ours = "/assay-run/"
	head, rest, found := strings.Cut(path, ours)
	if !found {
		return path
	}
	name, tail, _ := cutSlash(rest)
	for _, kind := range []string{"run_", "mcp-", "check_"} {
		if id, ok := strings.CutPrefix(name, kind); ok && (kind == "run_" || len(id) == 26) { // a ULID
			name = "<" + strings.Trim(kind, "-_") + ">"
			break
		}
	}
	return head + ours + name + normalizeCgroup(tail)
}

// normalizeLock replaces the address in the name of a lock of GnuPG's.
func normalizeLock(path string) string {
	start := strings.LastIndex(path, "/.#lk0x") + len("/.#lk0x")
	end := start + len(path[start:]) - len(strings.TrimLeft(path[start:], digits+"abcdef"))
	if end-start != 16 {
		return path
	}
	return path[:start] + "<address>" + path[end:]
}

// ownPID replaces the pid of who used a path in its last part, and reports whether
// it is there.
func ownPID(path string, pid uint32) (string, bool) {
	if pid < 10 {
		return path, false
	}
	var buf [10]byte
	number, base := string(strconv.AppendUint(buf[:0], uint64(pid), 10)), strings.LastIndexByte(path, '/')+1
	i := strings.Index(path[base:], number)
	if i < 0 {
		return path, false
	}
	i += base
	end := i + len(number)
	if isHash(path[base:]) || isDigits(path[i-1:i]) || end < len(path) && isDigits(path[end:end+1]) {
		return path, false
	}
	for from, to := range unique(path[base:], false) {
		if base+from <= i && end <= base+to {
			return path, false
		}
	}
	return path[:i] + "<pid>" + path[end:], true
}

func normalizeProc(path string) string {
	parts := strings.Split(path, "/") // "", "proc", PID, ...
	if len(parts) < 3 {
		return path
	}
	if isDigits(parts[2]) {
		parts[2] = "<pid>"
	} else if parts[2] != "self" {
		return path
	}
	for i := 3; i+1 < len(parts); i++ {
		switch parts[i] {
		case "task":
			if isDigits(parts[i+1]) {
				parts[i+1] = "<tid>"
			}
		case "fd", "fdinfo":
			if isDigits(parts[i+1]) {
				parts[i+1] = "<fd>"
			}
		}
	}
	return strings.Join(parts, "/")
}

// isInode reports whether path is what the kernel calls a pipe or socket.
func isInode(path, prefix string) bool {
	n, ok := strings.CutPrefix(path, prefix)
	n, closed := strings.CutSuffix(n, "]")
	return ok && closed && isDigits(n)
}

// nameless returns the path of a file that may have been made with O_TMPFILE, as
// one that has a name never is: the kernel calls it #N after its inode.
func nameless(path string, marks schema.Marks) string {
	if i := strings.LastIndexByte(path, '/') + 1; marks&(schema.MarkDeleted|schema.MarkUnreachable) != 0 && path[i:] != "" && path[i] == '#' && isDigits(path[i+1:]) {
		return path[:i] + "#<random>"
	}
	return path
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
