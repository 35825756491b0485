package gitpatch

import (
	"fmt"
	"strconv"
	"strings"
)

// bareBytes are the bytes of names that need no quotes.
const bareBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@=,%/"

// quote writes a name as git does in its headers, with a prefix such as "a/".
func quote(prefix, name string) string {
	if strings.Trim(name, bareBytes) == "" {
		return prefix + name
	}
	var b strings.Builder
	b.WriteString(`"` + prefix)
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// unquote reads what quote wrote, and nothing else.
func unquote(prefix, text string) (name string, ok bool) {
	inner := text
	if strings.HasPrefix(text, `"`) && strings.HasSuffix(text, `"`) && len(text) > 1 {
		var b strings.Builder
		for rest := text[1 : len(text)-1]; rest != ""; {
			c, size := rest[0], 1
			if c == '\\' && len(rest) > 1 {
				c, size = rest[1], 2
				if n, err := strconv.ParseUint(rest[1:min(len(rest), 4)], 8, 8); err == nil {
					c, size = byte(n), min(len(rest), 4)
				}
			}
			b.WriteByte(c)
			rest = rest[size:]
		}
		inner = b.String()
	}
	name, ok = strings.CutPrefix(inner, prefix)
	return name, ok && quote(prefix, name) == text
}

// Refuses reports whether git does not write to a path: one below a directory named ".git" in a form that some
// file system takes for that, and a link named ".gitmodules".
func Refuses(name string, link bool) bool {
	for part := range strings.SplitSeq(name, "/") {
		lower := strings.ToLower(part)
		lower, _, _ = strings.Cut(lower, ":")
		lower = strings.TrimRight(lower, " .")
		if lower == ".git" || lower == "git~1" || strings.ContainsRune(part, '\\') && strings.Contains(lower, "git") {
			return true
		}
		if link && (strings.HasPrefix(lower, ".gitmodules") || strings.HasPrefix(lower, "gitmod~") ||
			strings.HasPrefix(lower, "gi7eba~")) {
			return true
		}
	}
	return false
}
