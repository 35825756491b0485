package surface

import (
	"iter"
	"strings"
)

// Names that are random by their form alone: a UUID, a ULID, two numbers of Bun's, a moment. Nobody else has
// them, so that a name with one that the run made is of this run, also if it stays.

// byForm returns base, the last part of a path that the run made, with <random> in place
// of its UUIDs and ULIDs; and, beside one of these or if the path is in a program's own
// directory (inState), of its moments. spelled says of a piece that an argument had it.
func byForm(base string, state bool, spelled func(piece string) bool) string {
	var b strings.Builder
	done := 0
	for range unique(base, false) {
		state = true
	}
	for start, end := range unique(base, state) {
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

// unique yields where in s there is a UUID, a ULID or, if they are asked for, a moment,
// between characters that are no letters or digits.
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

// uniqueAt is how long what s begins with is, 0 where it is none of them.
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

// moments are how programs write a date with a time of day, the longest first; and the
// milliseconds, microseconds and nanoseconds since 1970.
var moments = []string{
	"2ddd-dd-ddTdd-dd-dd-dddZ", "2ddd-dd-ddTdd_dd_dd_dddZ", "2ddd-dd-ddTdd-dd-dd", "2ddd-dd-ddTdd:dd:dd.dddZ", "2ddd-dd-ddTdd:dd:ddZ", "2ddd-dd-ddTdd:dd:dd", "2ddd-dd-ddTdd-dd", "2ddd-dd-ddTdddddd", "2ddd-dd-dd_dd-dd-dd",
	"2dddddddTddddddZ", "2dddddddTdddddd", "2ddddddd_dddddd", "2ddddddd-dddddd",
	"1dddddddddddddddddd", "1ddddddddddddddd", "1dddddddddddd",
}

// moment is how long a moment at the start of s is, with the eight hexadecimal digits and
// more that Gemini CLI puts behind it.
func moment(s string) int {
	for _, form := range moments {
		n := len(form)
		if !like(s, form) || !ends(s[n:]) {
			continue
		}
		rest, more := strings.CutPrefix(s[n:], "-")
		if hex := len(rest) - len(strings.TrimLeft(rest, digits+"abcdef")); more && hex >= 8 && ends(rest[hex:]) && uniqueAt(rest, false) == 0 {
			n += 1 + hex
		}
		return n
	}
	return 0
}

// like reports whether s begins as form says: d is a digit, h a hexadecimal one, and
// anything else itself.
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

// inState reports whether path is below a directory whose name begins with a dot, where
// programs keep what is theirs. Git's are a project's.
func inState(path string) bool {
	return strings.Contains(path, "/.") && !strings.Contains(path, ".git/")
}
