package surface

import (
	"runtime"
	"strings"
)

// What looks random in a name. When that counts, normalize.go and made.go say.

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

// generatedFirst has the first bytes of their names.
var generatedFirst = func() (t [256]bool) {
	for i := range generated {
		t[generated[i].prefix[0]] = true
	}
	return t
}()

// madeByMkdtemp returns the last part of path, which a mkdir or a link made, without what may
// be random in it, "" where nothing may.
func madeByMkdtemp(path string) string {
	dir, base := cutLast(path)
	if name := byGenerator(base, true); name != "" {
		return name
	}
	if rest, ok := strings.CutPrefix(base, "s-"); ok && strings.HasSuffix(rest, "-working") && strings.Contains(dir, "/incremental/") {
		return "s-<random>-working" // rustc
	}
	if name := randomEnd(base, 6, alnum); name != "" || !below(temporaryDirs, path) {
		return name
	}
	if name := normalizePart(base); name != base {
		return name
	}
	return ""
}

// madeByMkstemp does the same for a file that an open has made. Python puts eight characters where the C library puts six; it says
// O_NOFOLLOW besides, as others do (0o400000 on x86-64, 0o100000 on arm64).
func madeByMkstemp(path string, flags uint64, mode uint32) string {
	const rdwr, creat, excl = 0o2, 0o100, 0o200
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	_, base := cutLast(path)
	if name := byGenerator(base, true); name != "" {
		return name
	}
	if piece, ok := strings.CutSuffix(base, ".rcgu.o"); ok { // rustc: CRATE.UNIT.PIECE.rcgu.o
		if i := strings.LastIndexByte(piece, '.') + 1; i > 0 && len(piece)-i == 7 && strings.Trim(piece[i:], lower) == "" {
			return base[:i] + "<random>.rcgu.o"
		}
	}
	if flags&(creat|excl) != creat|excl {
		return ""
	}
	if i := len(base) - len(".tmp1234567"); i > 0 && base[i:i+4] == ".tmp" && strings.Trim(base[i+4:], digits+"abcdef") == "" {
		return base[:i] + ".tmp<random>" // LLVM
	}
	if piece, ok := strings.CutPrefix(path, "/dev/shm/sem."); ok && len(piece) == 6 && strings.Trim(piece, alnum) == "" {
		return "sem.<random>" // sem_open(3), which then links it to the name that it was asked for
	}
	if flags&3 == rdwr && mode == 0o600 {
		if flags&nofollow != 0 {
			if name := randomEnd(base, 8, lower); name != "" {
				return name
			}
			if len(base) == 8 && strings.Trim(base, lower) == "" {
				return "<random>" // unless anything shows that it was chosen
			}
		}
		if name := randomEnd(base, 6, alnum); name != "" {
			return name
		}
	}
	if name := normalizePart(base); below(temporaryDirs, path) && name != base {
		return name
	}
	return ""
}

// randomEnd returns path with the last n characters of its name replaced by
// <random>, or the last n before a suffix, as mkstemps(3) makes them; "" where
// neither are of the alphabet, or they may be a word.
func randomEnd(path string, n int, alphabet string) string {
	base := strings.LastIndexByte(path, '/') + 1
	for _, end := range []int{len(path), base + strings.LastIndexByte(path[base:], '.')} {
		start := end - n
		if start < base || strings.Trim(path[start:end], alphabet) != "" || looksChosen(path[start:end]) {
			continue
		}
		for isDigits(path[start:end]) && start > base && isDigits(path[start-1:start]) { // all of a number
			start--
		}
		return path[:start] + "<random>" + path[end:]
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
// made it. words says that the piece may look like a word.
func byGenerator(p string, words bool) string {
	if p == "" || !generatedFirst[p[0]] { // as most
		return ""
	}
	for i := range generated {
		g := &generated[i]
		rest, ok := strings.CutPrefix(p, g.prefix)
		if !ok {
			continue
		}
		n := g.length
		if n == 0 {
			n = len(rest) - len(strings.TrimLeft(rest, g.alphabet))
		}
		if n == 0 || len(rest) < n || strings.Trim(rest[:n], g.alphabet) != "" || !words && looksChosen(rest[:n]) {
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
	if name := byGenerator(p, false); name != "" {
		return name
	}
	if name := byForm(p, false, nobody); name != p {
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

func nobody(string) bool { return false }

// isHash reports whether p begins or ends with a hash in hexadecimal: the end of
// one may be all digits, but it is no random number.
func isHash(p string) bool {
	const hex = "0123456789abcdef"
	if len(p) < 32 {
		return false
	}
	n := max(len(p)-len(strings.TrimLeft(p, hex)), len(p)-len(strings.TrimRight(p, hex)))
	return n >= 32 && strings.ContainsAny(p, "abcdef")
}
