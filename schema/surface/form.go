package surface

import (
	"iter"
	"strings"
)

// Some names are random by their form alone: a UUID, a ULID, two numbers of Bun's, a time. If the run made a
// file with such a name, the name belongs to this run alone, even if the file stays.

// byForm returns base, the last part of a path that the run made, with <random> in place
// of its UUIDs and ULIDs. It replaces a time beside one of these, or if the path is in a
// program's own directory (inState). spelled reports whether an argument had a piece.
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
	"2ddd-dd-ddTdd-dd-dd-dddZ", "2ddd-dd-ddTdd_dd_dd_dddZ", "2ddd-dd-ddTdd-dd-dd", "2ddd-dd-ddTdd:dd:dd.dddZ", "2ddd-dd-ddTdd:dd:ddZ", "2ddd-dd-ddTdd:dd:dd", "2ddd-dd-ddTdd-dd", "2ddd-dd-ddTdddddd", "2ddd-dd-dd_dd-dd-dd",
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
		if hex := len(rest) - len(strings.TrimLeft(rest, digits+"abcdef")); more && hex >= 8 && ends(rest[hex:]) && uniqueAt(rest, false) == 0 {
			n += 1 + hex
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

// inState reports whether path is below a directory whose name begins with a dot, where
// programs keep their own files. Files of Git belong to the project.
func inState(path string) bool {
	return strings.Contains(path, "/.") && !strings.Contains(path, ".git/")
}
