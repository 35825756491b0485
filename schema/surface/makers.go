package surface

import (
	"iter"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// What makes names by chance: programs and libraries that are known by their whole pattern, and
// generators, whose names count only for what the run made and that is gone. normalize.go says when.

// maker is a known maker of names in directories for temporary files and in git's own.
type maker struct {
	prefix   string
	length   int // of the random piece; 0: any
	alphabet string
	after    []string // what follows; a "*" at the end stands for more, from a "." or "-" on
	// common: somebody may choose such a name as well, so that it is no whole pattern.
	common bool
	who    string
}

const (
	digits = "0123456789"
	hex    = digits + "abcdef"
	base36 = digits + "abcdefghijklmnopqrstuvwxyz"
	lower  = base36 + "_"
	alnum  = base36 + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

var makers = []maker{
	{"tmp.", 10, alnum, []string{""}, false, "mktemp(1)"},
	{"tmp", 8, lower, []string{"", "*"}, false, "python tempfile"},
	{"sem.mp-", 8, lower, []string{""}, false, "python multiprocessing"},
	{"pip-unpack-", 8, lower, []string{""}, false, "pip"},
	{"pip-install-", 8, lower, []string{""}, false, "pip"},
	{"pip-build-tracker-", 8, lower, []string{""}, false, "pip"},
	{"pip-ephem-wheel-cache-", 8, lower, []string{""}, false, "pip"},
	{".tmp", 6, alnum, []string{"", "*"}, false, "the Rust crate tempfile"},
	{"go-build", 0, digits, []string{""}, false, "go build, go run, go test"},
	{"go-link-", 0, digits, []string{""}, false, "go build"},
	{"etilqs_", 16, hex, []string{""}, false, "sqlite"},
	{"tmp_obj_", 6, alnum, []string{""}, false, "git objects"},
	{"tmp_pack_", 6, alnum, []string{""}, false, "git packs"},
	{"tmp_idx_", 6, alnum, []string{""}, false, "git pack indexes"},
	{"tmp_rev_", 6, alnum, []string{""}, false, "git reverse indexes"},
	{"tmp_mtimes_", 6, alnum, []string{""}, false, "git cruft packs"},
	{"tmp_bitmap_", 6, alnum, []string{""}, false, "git pack bitmaps"},
	{"tmp_objdir-incoming-", 6, alnum, []string{""}, false, "git receive-pack"},
	{"refs_", 6, alnum, []string{""}, true, "git update-server-info"},
	{"packs_", 6, alnum, []string{""}, true, "git update-server-info"},
	{".tmp-", 0, digits, []string{"-pack", "-pack*"}, false, "git repack"},
	{"cc", 6, alnum, []string{".s", ".o", ".c", ".i", ".ii", ".res", ".le", ".ld", ".ltrans_args", ".cdtor.c",
		".cdtor.o", ".ltrans.out", ".ltrans0*"}, false, "gcc, collect2"},
	{"cc", 6, alnum, []string{""}, true, "gcc, collect2"},
	{"sed", 6, alnum, []string{""}, true, "sed -i"},
	{"sort", 6, alnum, []string{""}, true, "sort"},
	{"sh-thd.", 6, alnum, []string{""}, false, "bash here-documents"},
	{"codex-arg0", 6, alnum, []string{""}, true, "Codex"},
	{"gemini-shell-", 6, alnum, []string{""}, true, "Gemini CLI"},
	{"fswatch-probe-", 6, alnum, []string{""}, true, "Claude Code"},
	{"rmeta", 6, alnum, []string{""}, true, "rustc"},
	{"rustc", 6, alnum, []string{""}, true, "rustc"},
	{"target", 6, alnum, []string{""}, true, "cargo"},
}

// makersFirst has the first bytes of their names.
var makersFirst = func() (t [256]bool) {
	for i := range makers {
		t[makers[i].prefix[0]] = true
	}
	return t
}()

// What a piece must be that a maker may have put there, after what the run shows of the file.
var (
	// bySomebody: it shows nothing.
	bySomebody = func(m *maker, piece string) bool { return !m.common && !looksChosen(piece) }
	// byDrawing: it made the file as generators do; see drawn.
	byDrawing = func(m *maker, piece string) bool { return !m.common && !endsInWord(piece) }
	// byTheRun: it made the file exclusively, and the name counts only if the file is gone.
	byTheRun = func(*maker, string) bool { return true }
)

// byMaker returns the last part of a path without its random piece, or "" if no known maker
// made it.
func byMaker(base string, may func(m *maker, piece string) bool) string {
	if base == "" || !makersFirst[base[0]] { // as most
		return ""
	}
	for i := range makers {
		m := &makers[i]
		rest, ok := strings.CutPrefix(base, m.prefix)
		if !ok {
			continue
		}
		n := m.length
		if n == 0 {
			n = len(rest) - len(strings.TrimLeft(rest, m.alphabet))
		}
		if n == 0 || len(rest) < n || strings.Trim(rest[:n], m.alphabet) != "" {
			continue
		}
		if piece := rest[:n]; m.alphabet != digits && isDigits(piece) || !may(m, piece) {
			continue
		}
		for _, a := range m.after {
			start, more := strings.CutSuffix(a, "*")
			if rest[n:] == a || more && strings.HasPrefix(rest[n:], start) &&
				strings.IndexAny(rest[n+len(start):], ".-") == 0 {
				return m.prefix + "<random>" + rest[n:]
			}
		}
	}
	return ""
}

// hasPlace reports whether byPlace may know a part of path.
func hasPlace(path string) bool {
	return holds(path, []string{"/_logs/", "/incremental/", "/s-", "/hsperfdata_", ".git/"})
}

// byPlace does the same for makers that are known by the directory as well, wherever that is.
func byPlace(dir, base string, made bool) string {
	switch {
	case base == "":
	case base[0] == '2' && strings.HasSuffix(dir, "/_logs/"): // npm
		const time = "2ddd-dd-ddTdd_dd_dd_dddZ"
		if like(base, time) && strings.HasPrefix(base[len(time):], "-debug-") && strings.HasSuffix(base, ".log") {
			return "<random>" + base[len(time):]
		}
	case made && strings.HasSuffix(base, ".rcgu.o"): // rustc: CRATE.UNIT.PIECE.rcgu.o
		unit := strings.TrimSuffix(base, ".rcgu.o")
		if i := strings.LastIndexByte(unit, '.') + 1; i > 0 && len(unit)-i == 7 &&
			strings.Trim(unit[i:], base36) == "" {
			return base[:i] + "<random>.rcgu.o"
		}
	case strings.HasPrefix(base, "s-"):
		return byRustc(base, strings.Contains(dir, "/incremental/"))
	case strings.HasSuffix(dir, ".git/"):
		if pid, ok := strings.CutPrefix(strings.TrimSuffix(base, ".lock"), "index.stash."); ok && isDigits(pid) {
			return "index.stash.<pid>" + base[len("index.stash.")+len(pid):] // git stash
		}
		if len(base) == 7 && base[0] == 't' && strings.Trim(base[1:], alnum) == "" && (made || !looksChosen(base[1:])) {
			return "t<random>" // git init tries whether there are symbolic links
		}
	case isDigits(base) && strings.HasPrefix(path.Base(dir), "hsperfdata_"):
		return "<pid>" // Java
	}
	return ""
}

// byRustc is the directory or lock of a session of rustc's: s-TIME-CHANCE-working, s-TIME-CHANCE-HASH,
// s-TIME-CHANCE.lock. In another directory than Cargo's, TIME and CHANCE have the lengths of today.
func byRustc(base string, cargo bool) string {
	name, locks := strings.CutSuffix(base, ".lock")
	parts := strings.Split(name, "-")
	for _, p := range parts {
		if p == "" || strings.Trim(p, base36) != "" {
			return ""
		}
	}
	switch {
	case parts[0] != "s" || !cargo && (len(parts) < 3 || len(parts[1]) != 10 || len(parts[2]) != 7):
	case locks && len(parts) == 3:
		return "s-<random>.lock"
	case !locks && len(parts) == 4 && parts[3] == "working":
		return "s-<random>-working"
	case !locks && len(parts) == 4:
		return "s-<random>"
	}
	return ""
}

// byPID does the same for makers that have the number of their own process in a name, beside
// something else that is theirs alone.
func byPID(base, pid string) string {
	i := strings.Index(base, pid)
	if i < 0 || i > 0 && isDigits(base[i-1:i]) && !like(base[max(i-9, 0):], "2ddddddd-") {
		return ""
	}
	before, after := base[:i], base[i+len(pid):]
	switch {
	case before == "temp-" && after == ".rdb": // redis
		return "temp-<pid>.rdb"
	case len(before) >= 9 && like(before[len(before)-9:], "2ddddddd-") && strings.HasPrefix(after, "-"): // Ruby
		piece := len(after) - 1 - len(strings.TrimLeft(after[1:], base36))
		if piece > 0 && piece <= 7 {
			return before[:len(before)-9] + "<random>" + after[1+piece:]
		}
	}
	return ""
}

// madeByMkdtemp returns the last part of path, which a mkdir or a link made, without what
// a generator may have put there, or "".
func madeByMkdtemp(path string, perl, drawn bool, mode uint32) string {
	_, base := cutLast(path)
	if name := byMaker(base, byTheRun); name != "" {
		return name
	}
	if name := byPerl(base, perl, drawn); name != "" {
		return name
	}
	if mode == 0o700 { // Python puts eight characters where the C library puts six
		if name := randomPart(base, 8, lower, drawn); name != "" {
			return name
		}
	}
	if name := randomPart(base, 6, alnum, drawn); name != "" {
		return name
	}
	return number(base)
}

// madeByMkstemp does the same for a file that an open has made. Python puts eight characters where
// the C library puts six; it says O_NOFOLLOW besides, as others do (0o400000 on x86-64, 0o100000 on
// arm64).
func madeByMkstemp(path string, perl, drawn bool, flags uint64, mode uint32) string {
	nofollow := uint64(0o400000)
	if runtime.GOARCH == "arm64" {
		nofollow = 0o100000
	}
	_, base := cutLast(path)
	if name := byMaker(base, byTheRun); name != "" {
		return name
	}
	if i := len(base) - len(".tmp1234567"); i > 0 && base[i:i+4] == ".tmp" && strings.Trim(base[i+4:], hex) == "" {
		return base[:i] + ".tmp<random>" // LLVM
	}
	if i := strings.LastIndex(base, ".pyc."); i > 0 && isDigits(base[i+5:]) {
		return base[:i] + ".pyc.<random>" // Python, until it is whole
	}
	if piece, ok := strings.CutPrefix(path, "/dev/shm/sem."); ok && len(piece) == 6 &&
		strings.Trim(piece, alnum) == "" {
		return "sem.<random>" // sem_open(3), which then links it to the name that it was asked for
	}
	if flags&3 == openRdwr && mode == 0o600 {
		if name := byPerl(base, perl, drawn); name != "" {
			return name
		}
		if flags&nofollow != 0 {
			if name := randomPart(base, 8, lower, drawn); name != "" {
				return name
			}
			if len(base) == 8 && strings.Trim(base, lower) == "" {
				return "<random>" // unless anything shows that it was chosen
			}
		}
		if name := randomPart(base, 6, alnum, drawn); name != "" {
			return name
		}
	}
	return number(base)
}

// byPerl is a name of Perl's File::Temp: the ten last characters, or fewer, of all that stands before
// a suffix.
func byPerl(base string, perl, drawn bool) string {
	for end := len(base); perl && end > 0; end = strings.LastIndexByte(base[:end], '.') {
		start := max(end-10, 0, len(strings.TrimRight(base[:end], alnum+"_")))
		if piece := base[start:end]; len(piece) >= 4 && !isDigits(piece) &&
			(!looksChosen(piece) || drawn && len(piece) == 10 && !endsInWord(base[:end])) {
			return base[:start] + "<random>" + base[end:]
		}
	}
	return ""
}

// randomPart returns base with n characters of it replaced by <random>: the last ones, as mkstemp(3)
// makes them, or the last before a suffix; "" where none are of the alphabet, or they may
// be a word or a number. Behind a prefix of a name that was drawn, letters that only look
// like a word are none.
func randomPart(base string, n int, alphabet string, drawn bool) (name string) {
	before := ".-_"
	if strings.Contains(alphabet, "_") {
		before = ".-"
	}
	for end := len(base); end >= n; end = strings.LastIndexAny(base[:end], before) {
		piece := base[end-n : end]
		if strings.Trim(piece, alphabet) != "" || isDigits(piece) {
			continue
		}
		without := base[:end-n] + "<random>" + base[end:]
		if !looksChosen(piece) {
			return without
		}
		if name == "" && drawn && end > n && !endsInWord(base[:end]) {
			name = without
		}
	}
	return name
}

// drawn reports whether e makes a file as mkstemp(3) does, or a directory as mkdtemp(3) does. Whoever chooses
// a name seldom asks for all of that.
func drawn(e *schema.KernelEvent) bool {
	if e.Kind == schema.KindMkdir {
		return e.Mode == 0o700
	}
	return e.Kind == schema.KindOpen && e.Flags&openExcl != 0 && e.Flags&3 == openRdwr && e.Mode == 0o600
}

// number returns base with the number replaced that a generator may have put there, or "": one
// of 32 bits, as Go makes them, or of 64, as Java does. One that is a date is not.
func number(base string) string {
	for end := len(base); end > 0; end-- {
		start := end
		for start > 0 && isDigits(base[start-1:start]) {
			start--
		}
		if n, err := strconv.ParseUint(base[start:end], 10, 64); err == nil && base[start] != '0' {
			if l := end - start; l >= 7 && n < 1<<32 && (l != 8 || !isDate(base[start:end])) || l >= 17 {
				return base[:start] + "<random>" + base[end:]
			}
		}
		end = max(start, 1)
	}
	return ""
}

// isDate reports whether s is YYYYMMDD, of 1900 to 2099.
func isDate(s string) bool {
	return (s[:2] == "19" || s[:2] == "20") && s[4:6] >= "01" && s[4:6] <= "12" && s[6:8] >= "01" && s[6:8] <= "31"
}

// looksChosen reports whether a piece of a name may be a word rather than random:
// it has no digit but a vowel, and its letters are all small, or all capital but
// perhaps for the rest of a word. Six random letters and digits look so once in
// eighty times, eight of Python's once in fourteen; a name that somebody chose must not vanish for that.
func looksChosen(piece string) bool {
	if strings.ContainsAny(piece, digits) || !strings.ContainsAny(piece, "aeiouyAEIOUY") {
		return false
	}
	return strings.ToLower(piece) == piece || strings.ToUpper(piece) == piece || strings.ToLower(piece[1:]) == piece[1:]
}

// endsInWord reports whether s ends in one of words: by chance, six letters do so once in three hundred million
// times for each of them.
func endsInWord(s string) bool {
	s = strings.ToLower(s)
	return slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(s, w) })
}

// words are those that people name files by, of six letters and more.
var words = strings.Fields(`
	accounts address agents answer apikey archive assets author backup balance baseline binary bootstrap branch
	browser buffer bundle cached certificate changes channel checkout checkpoint client cluster collect command
	commit common compile complete component compose config connect console consul content context control cookie
	cookies counter country credential credentials customer customers daemon dashboard database default delete
	deploy deployment design details device devices dictionary directory docker document documents domain download
	downloads driver editor element emails employee employees encrypted engine entries environment errors events
	example examples execute expected export extract failed feature figure figures filter finance fixture fixtures
	folder format frontend function gateway generated global google graphs groups handle handler headers health
	helper hidden history hostname images import ingest initial install installer instance invoice invoices issues
	journal kernel keychain keyring keystore kubernetes labels latest launch ledger letter library licence license
	listen loader locale locked logger logging machine mailbox manager manifest mapping market master matrix member
	members memory merged message messages metadata method metrics migrate migration mirror mobile models module
	modules monitor network notebook object objects offline online openssl option options oracle orders original
	output outputs package packages parser partial passphrase passwd password passwords patched patches payload
	payment payments payroll people permission personal picture pictures pipeline plugin plugins policy portal
	postgres prefix prepare primary printer private process processed processes product production products profile
	profiles program project projects prompt prompts properties proposal public python queries readme recent record
	records recovery redirect reference region register registry release remote render replica report reports
	repository request requests response restore result results resume reverse review revision router runner runtime
	salary sample samples schedule schema scratch screen screenshot script scripts search secret secrets section
	secure security segment select sender server servers service services session sessions settings shadow shared
	signal signature signed single snapshot socket source sources special staged staging standard status storage
	stream string structure student students subject summary supervisor support symbol system tables tarball target
	targets template terminal tested testing thread ticket tickets timing tokens toolchain tracker transaction
	transfer transform trigger unlock update updates upload uploads values vendor vendors verify version versions
	videos wallet warning webhook website window windows worker workers workspace wrapper writer
`)

// byForm returns base, the last part of a path that the run made, with <random> in place
// of its UUIDs and ULIDs. It replaces a time beside one of these, or if the path is in the
// home of a program that names its files so (inHome). spelled reports whether an argument had a piece.
func byForm(base string, home bool, spelled func(piece string) bool) string {
	var b strings.Builder
	done := 0
	home = home || hasUnique(base)
	for start, end := range unique(base, home) {
		if spelled(base[start:end]) {
			continue
		}
		b.WriteString(base[done:start])
		b.WriteString("<random>")
		done = end
	}
	if done == 0 {
		return base
	}
	return b.String() + base[done:]
}

// homes are of programs that name what they keep there by the time.
var homes = []string{"/.claude", "/.codex/", "/.gemini/", "/opencode/", "/.npm/", "/_cacache/"}

func inHome(path string) bool { return holds(path, homes) }

// unique yields the places in s of UUIDs, ULIDs and, if asked for, times, between
// characters that are neither letters nor digits.
func unique(s string, moments bool) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for start := 0; start+13 <= len(s); {
			n := 0
			if start == 0 || !isAlnum(s[start-1]) {
				n = uniqueAt(s[start:], moments)
			}
			if n > 0 && !yield(start, start+n) {
				return
			}
			start += max(n, 1)
		}
	}
}

// hasUnique reports whether s has a UUID or a ULID.
func hasUnique(s string) bool {
	for range unique(s, false) {
		return true
	}
	return false
}

// uniqueAt is the length of the UUID, ULID or time that s begins with, or 0.
func uniqueAt(s string, moments bool) int {
	switch {
	case like(s, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh") && ends(s[36:]):
		return 36
	case isULID(s) && ends(s[26:]):
		return 26
	case like(s, "hhhhhhhhhhhhhhhh-hhhhhhhh") && ends(s[25:]): // libraries that a program of Bun's unpacks
		return 25
	case moments:
		return moment(s)
	}
	return 0
}

// isULID reports whether s begins with a ULID of our time: 26 characters of Crockford's
// Base32, the first two of which are 01 from 2004 to 2039.
func isULID(s string) bool {
	const upper = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	if len(s) < 26 || s[:2] != "01" {
		return false
	}
	return strings.Trim(s[:26], upper) == "" || strings.Trim(s[:26], strings.ToLower(upper)) == ""
}

// moments are the forms of a date with a time of day, the longest first, and of the
// milliseconds, microseconds and nanoseconds since 1970.
var moments = []string{
	"2ddd-dd-ddTdd-dd-dd-dddZ", "2ddd-dd-ddTdd_dd_dd_dddZ", "2ddd-dd-ddTdd-dd-dd", "2ddd-dd-ddTdd:dd:dd.dddZ",
	"2ddd-dd-ddTdd:dd:ddZ",
	"2ddd-dd-ddTdd:dd:dd", "2ddd-dd-ddTdd-dd", "2ddd-dd-ddTdddddd", "2ddd-dd-dd_dd-dd-dd",
	"2dddddddTddddddZ", "2dddddddTdddddd", "2ddddddd_dddddd", "2ddddddd-dddddd",
	"1dddddddddddddddddd", "1ddddddddddddddd", "1dddddddddddd",
}

// moment is the length of the time that s begins with, including the eight hexadecimal
// digits and more that Gemini CLI appends.
func moment(s string) int {
	for _, form := range moments {
		n := len(form)
		if !like(s, form) || !ends(s[n:]) {
			continue
		}
		rest, more := strings.CutPrefix(s[n:], "-")
		if tail := len(rest) - len(strings.TrimLeft(rest, hex)); more && tail >= 8 && ends(rest[tail:]) &&
			uniqueAt(rest, false) == 0 {
			n += 1 + tail
		}
		return n
	}
	return 0
}

// like reports whether s begins with form: d stands for a digit, h for a hexadecimal
// digit, and anything else for itself.
func like(s, form string) bool {
	if len(s) < len(form) {
		return false
	}
	for i := range len(form) {
		switch c := s[i]; form[i] {
		case 'd':
			if c < '0' || c > '9' {
				return false
			}
		case 'h':
			if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
				return false
			}
		default:
			if c != form[i] {
				return false
			}
		}
	}
	return true
}

// ends reports whether the word before rest is over.
func ends(rest string) bool { return rest == "" || !isAlnum(rest[0]) }

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, digits) == ""
}
