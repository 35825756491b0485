package surface

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
)

// What the capability surface makes of names that differ between two runs of the same workload. The
// layer always keeps the exact name.
//
// A name that the run made exclusively (O_EXCL, mkdir, link and their like: nothing was there), and
// that is gone at the end (removed, or renamed), loses its changing part if that fits a generator:
// mkstemp(3) and mkdtemp(3), the temporary files of Python, Perl, Go and Java, the number of the
// process itself (<pid>). A piece that may be a word, that an argument spelled before, or digits that
// may be a date or a count, fits none. What somebody executed keeps its name. See made.
//
// Chance makes what looks like a word, too: six letters and digits once in eighty times. So a piece does not count as a
// word for its looks where the run shows that it was drawn: by a known maker's pattern, or behind a prefix and with the
// flags and the mode of mkstemp(3) or mkdtemp(3). There, only a word that people name files by is one (words). See
// drawn.
//
// Without that, a name loses only what a known maker's whole pattern says is random. Digits alone, six
// letters, or a hash are no such pattern. See makers and byPlace. And:
//
//   - /proc/PID becomes /proc/self for the process itself and /proc/<pid> for any other; below it,
//     task/TID becomes task/<tid> and fd/N fd/<fd>;
//   - the recorder's own name for a run in the path of a cgroup is <run>, that of a server of
//     mcp <mcp>, of a check <check>;
//   - the address in the name of a lock file of GnuPG's is <address>, and the number behind it <pid>;
//   - /dev/pts/N becomes /dev/pts/<n>, and a pipe or socket that was opened by way of
//     /proc/PID/fd loses its inode's number;
//   - #N, as the kernel calls a file made with O_TMPFILE after its inode, becomes #<random> where
//     the file has no name;
//   - a UUID or a ULID in a name that the run made is <random>, also if the file stays, and so is one
//     below a directory for temporary files where nothing is; a date with a time of day, in a name
//     that the run made, is beside one of those, or in the home of a program that names its files so.
//     A piece that an argument spelled before stays. See byForm.
//
// Two entries can so fall together; none ever disappears.

// Path is a path as the surface has it when it is not the process's own: without
// what differs between two runs of the same workload.
func Path(path string) string { return normalizePath(path, 0) }

// normalizePath returns a path that the run did not make as the surface has it; pid
// is who used it.
func normalizePath(path string, pid uint32) string {
	path = fixedPath(path, pid)
	return byName(path, 0, len(path))
}

// fixedPath returns path without what is never of the file itself.
func fixedPath(path string, pid uint32) string {
	if !utf8.ValidString(path) {
		path = schema.Readable(path)
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

// temporaryDirs are those where known makers are looked for, beside git's own.
var temporaryDirs = []string{"/tmp/", "/var/tmp/", "/dev/shm/"}

// byName replaces what a known maker's pattern says is random in the parts of path from one
// offset up to another, which are at the edges of parts.
func byName(path string, from, to int) string {
	from, to = max(from, 0), max(to, 0)
	git := strings.Index(path[:to], ".git/")
	temporary := below(temporaryDirs, path)
	if !temporary && git < 0 && !hasPlace(path) {
		return path // as most
	}
	for start := from; start < to; {
		end := to
		if i := strings.IndexByte(path[start:to], '/'); i >= 0 {
			end = start + i
		}
		dir, part := path[:start], path[start:end]
		name := byPlace(dir, part, false)
		if name == "" && (temporary || git >= 0 && start > git) {
			name = byMaker(part, bySomebody)
		}
		if name != "" {
			path = dir + name + path[end:]
			end, to = start+len(name), to+len(name)-len(part)
		}
		start = end + 1
	}
	return path
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

// normalizeLock replaces the address in the name of a lock of GnuPG's, and the number of the
// process at its end.
func normalizeLock(path string) string {
	start := strings.LastIndex(path, "/.#lk0x") + len("/.#lk0x")
	end := start + len(path[start:]) - len(strings.TrimLeft(path[start:], hex))
	if end-start != 16 {
		return path
	}
	host, last := path[end:], ""
	if i := strings.LastIndexByte(host, '.'); i > 0 && isDigits(strings.TrimSuffix(host[i+1:], "x")) {
		host, last = host[:i+1], "<pid>"+strings.Trim(host[i+1:], digits)
	}
	return path[:start] + "<address>" + host + last
}

// ownPID replaces the pid of who makes a file in its name, or returns "".
func ownPID(base string, pid uint32) string {
	if pid < 10 {
		return ""
	}
	number := strconv.FormatUint(uint64(pid), 10)
	if name := byPID(base, number); name != "" {
		return name
	}
	i := strings.Index(base, number)
	if i < 0 {
		return ""
	}
	end := i + len(number)
	if isHash(base) || i > 0 && isDigits(base[i-1:i]) || end < len(base) && isDigits(base[end:end+1]) {
		return ""
	}
	for from, to := range unique(base, false) {
		if from <= i && end <= to {
			return ""
		}
	}
	return base[:i] + "<pid>" + base[end:]
}

// isHash reports whether name begins or ends with a hash in hexadecimal: a part of one may be
// equal to a pid, but is none.
func isHash(name string) bool {
	if len(name) < 32 {
		return false
	}
	name = strings.ToLower(name)
	n := max(len(name)-len(strings.TrimLeft(name, hex)), len(name)-len(strings.TrimRight(name, hex)))
	return n >= 32 && strings.ContainsAny(name, "abcdef")
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
	if i := strings.LastIndexByte(path, '/') + 1; marks&(schema.MarkDeleted|schema.MarkUnreachable) != 0 &&
		path[i:] != "" && path[i] == '#' && isDigits(path[i+1:]) {
		return path[:i] + "#<random>"
	}
	return path
}
