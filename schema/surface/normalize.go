package surface

import (
	"runtime"
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
//   - the recorder's own name for a run in the path of a cgroup is <run>;
//   - the address in the name of a lock file of GnuPG's is <address>;
//   - /dev/pts/N becomes /dev/pts/<n>, and a pipe or socket that was opened by
//     way of /proc/PID/fd loses its inode's number;
//   - below /tmp, /var/tmp and /dev/shm, and in the temporary names git uses
//     in a directory NAME.git, a part made by a known generator has its random piece
//     replaced by <random>; the table is generated;
//   - #N, as the kernel calls a file made with O_TMPFILE after its inode, becomes
//     #<random> where the file has no name.
//
// What was made as mkstemp(3), mkdtemp(3) and their kin make it (O_RDWR, O_CREAT,
// O_EXCL and mode 0600; any directory) has the end of its name replaced
// by <random> for as long as it is there, below those directories at once, and
// elsewhere if the run removes it or gives it another name. A piece that may be a
// word, or that an argument spelled before, is never random. See made.
//
// Two entries can so fall together; none ever disappears.

// Path is a path as the surface has it when it is not the process's own: without
// what differs between two runs of the same workload.
func Path(path string) string { return normalizePath(path, 0) }

// normalizePath returns path as the surface has it; pid is who used it.
func normalizePath(path string, pid uint32) string {
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
	case strings.HasPrefix(path, "/tmp/"), strings.HasPrefix(path, "/var/tmp/"), strings.HasPrefix(path, "/dev/shm/"):
		path = normalizeTemp(path)
	}
	if i := strings.Index(path, ".git/"); i >= 0 {
		dir, rest := path[:i], normalizeTemp(path[i:])
		if try := strings.TrimPrefix(rest, ".git/t"); len(try) == 6 && strings.Trim(try, alnum) == "" {
			rest = ".git/t<random>" // git init tries whether there are symbolic links
		}
		return dir + rest
	}
	return path
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

// normalizeCgroup replaces the name that the recorder gave a run.
func normalizeCgroup(path string) string {
	const ours = "/assay-run/run_"
	i := strings.Index(path, ours)
	if i < 0 {
		return path
	}
	_, tail, _ := cutSlash(path[i+len(ours):])
	return path[:i] + "/assay-run/<run>" + tail
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
	number, base := strconv.FormatUint(uint64(pid), 10), strings.LastIndexByte(path, '/')+1
	i := strings.Index(path[base:], number)
	if i < 0 {
		return path, false
	}
	i += base
	end := i + len(number)
	if isDigits(path[i-1:i]) || end < len(path) && isDigits(path[end:end+1]) {
		return path, false
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

// generated lists generators of temporary names by what precedes the random
// piece, its length (0: any), its alphabet, and what may follow.
var generated = []struct {
	prefix   string
	length   int
	alphabet string
	after    []string
	who      string
}{
	{"tmp.", 10, alnum, []string{""}, "mktemp(1)"},
	{"tmp", 8, lower, []string{"", "*"}, "python tempfile"},
	{"sem.mp-", 8, lower, []string{""}, "python multiprocessing"},
	{".tmp", 6, alnum, []string{"", "*"}, "the Rust crate tempfile"},
	{"tmp_obj_", 6, alnum, []string{""}, "git objects"},
	{"tmp_pack_", 6, alnum, []string{""}, "git packs"},
	{"tmp_idx_", 6, alnum, []string{""}, "git pack indexes"},
	{"tmp_objdir-incoming-", 6, alnum, []string{""}, "git receive-pack"},
	{"refs_", 6, alnum, []string{""}, "git update-server-info"},
	{"packs_", 6, alnum, []string{""}, "git update-server-info"},
	{".tmp-", 0, digits, []string{"*"}, "git repack"},
	{"cc", 6, alnum, []string{".s", ".o", ".c", ".i", ".ii", ".res", ".le", ".ld", ".ltrans_args", ".cdtor.c", ".cdtor.o", ".ltrans.out", ".ltrans0*"}, "gcc, collect2"},
	{"sed", 6, alnum, []string{""}, "sed -i"},
	{"sort", 6, alnum, []string{""}, "sort"},
	{"sh-thd.", 6, alnum, []string{""}, "bash here-documents"},
}

// madeByMkstemp returns the name that the surface has for a file which an open has
// made under a random name, "" if it has not. Python puts eight characters where
// the C library puts six; it says O_NOFOLLOW besides, as others do (0o400000 on
// x86-64, 0o100000 on arm64). In a directory for temporary files that is certain,
// unless all of the name may be a word (Python's); elsewhere only for a generator
// of the table.
func madeByMkstemp(path string, flags uint64, mode uint32) (name string, sure bool) {
	const rdwr, creat, excl = 0o2, 0o100, 0o200
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	if flags&(3|creat|excl) != rdwr|creat|excl || mode != 0o600 || strings.Contains(path[strings.LastIndexByte(path, '/')+1:], "<random>") {
		return "", false
	}
	temporary := below([]string{"/tmp/", "/var/tmp/", "/dev/shm/"}, path)
	base := strings.LastIndexByte(path, '/') + 1
	if !temporary {
		if name := byGenerator(path[base:]); name != "" {
			return path[:base] + name, true
		}
	}
	if flags&nofollow != 0 {
		if name := randomEnd(path, 8, lower); name != "" {
			return name, temporary
		}
		if len(path)-base == 8 && strings.Trim(path[base:], lower) == "" {
			return path[:base] + "<random>", false
		}
	}
	return randomEnd(path, 6, alnum), temporary
}

// randomEnd returns path with the last n characters of its name replaced by
// <random>, or the last n before a suffix, as mkstemps(3) makes them; "" where
// neither are of the alphabet, or they may be a word.
func randomEnd(path string, n int, alphabet string) string {
	base := strings.LastIndexByte(path, '/') + 1
	for _, end := range []int{len(path), base + strings.LastIndexByte(path[base:], '.')} {
		if end-base >= n && strings.Trim(path[end-n:end], alphabet) == "" && !looksChosen(path[end-n:end]) {
			return path[:end-n] + "<random>" + path[end:]
		}
	}
	return ""
}

// looksChosen reports whether a piece of a name may be a word rather than random:
// it has no digit but a vowel, and its letters are all small, or all capital but
// perhaps for the rest of a word. Six random letters and digits look so once in
// eighty times; a name that somebody chose must not vanish for that.
func looksChosen(piece string) bool {
	if strings.ContainsAny(piece, digits) || !strings.ContainsAny(piece, "aeiouyAEIOUY") {
		return false
	}
	return strings.ToLower(piece) == piece || strings.ToUpper(piece) == piece || strings.ToLower(piece[1:]) == piece[1:]
}

const (
	digits = "0123456789"

	lower = "abcdefghijklmnopqrstuvwxyz0123456789_"
	alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// normalizeTemp normalizes each part of path. Most paths have none that changes,
// and are not copied.
func normalizeTemp(path string) string {
	for start := 0; start < len(path); {
		end := len(path)
		if i := strings.IndexByte(path[start:], '/'); i >= 0 {
			end = start + i
		}
		if part := normalizePart(path[start:end]); part != path[start:end] {
			path = path[:start] + part + path[end:]
			end = start + len(part)
		}
		start = end + 1
	}
	return path
}

// byGenerator returns p without its random piece, "" where no known generator
// made it.
func byGenerator(p string) string {
	for _, g := range generated {
		rest, ok := strings.CutPrefix(p, g.prefix)
		n := g.length
		if n == 0 {
			n = len(rest) - len(strings.TrimLeft(rest, g.alphabet))
		}
		if !ok || n == 0 || len(rest) < n || strings.Trim(rest[:n], g.alphabet) != "" {
			continue
		}
		tail := rest[n:]
		for _, a := range g.after {
			if start, any := strings.CutSuffix(a, "*"); tail == a || any && strings.HasPrefix(tail, start) && strings.IndexAny(tail[len(start):], ".-") == 0 {
				return g.prefix + "<random>" + tail
			}
		}
	}
	return ""
}

func normalizePart(p string) string {
	if name := byGenerator(p); name != "" {
		return name
	}
	// Go's os.MkdirTemp and os.CreateTemp: a decimal number of six digits and
	// more in place of the star; and names made of a pid.
	end := len(p)
	for end > 0 && (p[end-1] < '0' || p[end-1] > '9') {
		end--
	}
	start := end
	for start > 0 && '0' <= p[start-1] && p[start-1] <= '9' {
		start--
	}
	if end-start >= 6 && !isHash(p) {
		return p[:start] + "<random>" + p[end:]
	}
	return p
}

// isHash reports whether p begins or ends with a hash in hexadecimal: the end of
// one may be all digits, but it is no random number.
func isHash(p string) bool {
	const hex = "0123456789abcdef"
	n := max(len(p)-len(strings.TrimLeft(p, hex)), len(p)-len(strings.TrimRight(p, hex)))
	return n >= 32 && strings.ContainsAny(p, "abcdef")
}
