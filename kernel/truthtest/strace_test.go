//go:build linux && amd64

package truthtest

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A call is one line of strace, with what had been unfinished put together.
type call struct {
	line int // where it began: calls of one thread come in order
	end  int // where it ended
	tid  int
	name string
	args []string
	ret  string // what follows " = "
}

// An ending is how a thread went: "exited with 0", "killed by SIGKILL".
type ending struct {
	line, tid int
	how       string
}

var (
	resumedLine = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)$`)
	endingLine  = regexp.MustCompile(`^\+\+\+ (exited with \d+|killed by \w+)( \(core dumped\))? \+\+\+$`)
	callLine    = regexp.MustCompile(`^(\w+)\((.*)$`)
)

// readTrace reads the output of strace -f -yy -X raw.
func readTrace(path string) (calls []*call, ends []ending, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	type half struct {
		line int
		text string
	}
	halves := map[int]half{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for n := 1; sc.Scan(); n++ {
		pid, rest, ok := strings.Cut(sc.Text(), " ")
		tid, err := strconv.Atoi(pid)
		if !ok || err != nil {
			return nil, nil, fmt.Errorf("%s:%d: no thread: %q", path, n, sc.Text())
		}
		rest = strings.TrimLeft(rest, " ")
		begin := n
		if m := resumedLine.FindStringSubmatch(rest); m != nil {
			h, ok := halves[tid]
			if !ok && m[1] == "execve" { // the leader is who another thread's exec ends as
				continue
			}
			if !ok {
				return nil, nil, fmt.Errorf("%s:%d: nothing to resume: %q", path, n, rest)
			}
			delete(halves, tid)
			begin, rest = h.line, h.text+m[2]
		}
		switch m := endingLine.FindStringSubmatch(rest); {
		case m != nil:
			ends = append(ends, ending{n, tid, m[1]})
			continue
		case strings.HasPrefix(rest, "---"), strings.HasPrefix(rest, "+++"):
			continue
		}
		if text, ok := strings.CutSuffix(rest, " <unfinished ...>"); ok {
			halves[tid] = half{begin, text}
			continue
		}
		m := callLine.FindStringSubmatch(rest)
		if m == nil {
			return nil, nil, fmt.Errorf("%s:%d: no call: %q", path, n, rest)
		}
		args, after, ok := splitArgs(m[2])
		ret := strings.TrimLeft(after, " ")
		if !ok || !strings.HasPrefix(ret, "= ") {
			return nil, nil, fmt.Errorf("%s:%d: cannot be split: %q", path, n, rest)
		}
		calls = append(calls, &call{begin, n, tid, m[1], args, ret[2:]})
	}
	return calls, ends, sc.Err()
}

// splitArgs splits at the commas outside of strings, brackets and the names of
// descriptors, up to the closing parenthesis, and returns what follows that.
func splitArgs(s string) (args []string, after string, ok bool) {
	depth, start := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case '<':
			i += nameLen(s[i:]) - 1
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if s[i] == ')' && depth == 0 {
				if i > start {
					args = append(args, strings.TrimSpace(s[start:i]))
				}
				return args, s[i+1:], true
			}
			depth--
		case ',':
			if depth == 0 {
				args = append(args, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return nil, "", false
}

// nameLen is how long the name of a descriptor is, with its angle brackets:
// those of a path are escaped, a device and the arrow of a socket are not.
func nameLen(s string) int {
	depth, path := 0, strings.HasPrefix(s, "</")
	for i := range len(s) {
		switch {
		case s[i] == '<':
			depth++
		case s[i] == '>' && (path || s[i-1] != '-'):
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// list splits "[a, b]".
func list(s string) []string {
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return nil
	}
	args, _, _ := splitArgs(s[1:len(s)-1] + ")")
	return args
}

// fields reads "{a=1, b=2}".
func fields(s string) map[string]string {
	m := map[string]string{}
	s = strings.TrimPrefix(s, "{")
	args, _, _ := splitArgs(strings.TrimSuffix(s, "}") + ")")
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		m[k] = v
	}
	return m
}

// str undoes C's quoting. ok is false for a pointer and for what strace cut.
func str(s string) (text string, ok bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	return unescape(s[1 : len(s)-1]), true
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; {
		case c >= '0' && c <= '7':
			v := 0
			for n := 0; n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7'; n++ {
				v = v*8 + int(s[i]-'0')
				i++
			}
			i--
			b.WriteByte(byte(v))
		case c == 'x' && i+2 < len(s):
			v, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(v))
			i += 2
		default:
			if k := strings.IndexByte("nrtvfabe", c); k >= 0 {
				c = "\n\r\t\v\f\a\b\x1b"[k]
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

// descriptor reads "3</tmp/x>(deleted)".
func descriptor(s string) (fd int, name string, deleted bool) {
	s, deleted = strings.CutSuffix(s, "(deleted)")
	num, name, _ := strings.Cut(s, "<")
	fd, err := strconv.Atoi(num)
	if err != nil {
		fd = -1
	}
	name = strings.TrimSuffix(name, ">")
	if strings.HasPrefix(name, "/") {
		name, _, _ = strings.Cut(name, "<") // <char 1:3>
	}
	return fd, unescape(name), deleted
}

// number reads what -X raw prints: decimal, hexadecimal, octal, and the flags
// of clone with a signal.
func number(s string) uint64 {
	var v uint64
	for _, part := range strings.Split(s, "|") {
		n, err := strconv.ParseInt(part, 0, 64)
		if err != nil {
			u, _ := strconv.ParseUint(part, 0, 64)
			n = int64(u)
		}
		v |= uint64(n)
	}
	return v
}

// child is the pid, in strace's namespace, that a fork returned.
func (c *call) child() int {
	pid, outer, inside := strings.Cut(c.ret, " /* ")
	if inside {
		pid, _, _ = strings.Cut(outer, " ")
	}
	return int(number(pid))
}

// errno is the error of a call, "" when it succeeded and "?" when it never
// returned.
func (c *call) errno() string {
	switch {
	case strings.HasPrefix(c.ret, "? ERESTART"):
		return "EINTR" // as far as a program can see, if it sees anything
	case strings.HasPrefix(c.ret, "?"):
		return "?"
	case strings.HasPrefix(c.ret, "-1 "):
		return strings.Fields(c.ret)[1]
	}
	return ""
}
