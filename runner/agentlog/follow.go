package agentlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"unicode"
)

// Limits on what is read from one log.
const (
	maxLine     = 1 << 20   // bytes of a line
	maxBytes    = 256 << 20 // bytes of all lines
	maxLines    = 1_000_000
	maxProblems = 16 // whose text is kept
)

// Codes of problems.
const (
	CodeMissing   = "missing"    // there is no log
	CodeEmpty     = "empty"      // it has no lines
	CodeStale     = "stale"      // it had lines before the command started
	CodeNotFile   = "not_a_file" // a link, a pipe, a device, a directory
	CodeUnread    = "unreadable" // it cannot be opened or read
	CodeLine      = "bad_line"   // a line is not valid
	CodeTruncated = "truncated"  // it was cut after it had been read
	CodeReplaced  = "replaced"   // another file has taken its name
	CodeLimit     = "too_large"  // it exceeds the limits; the rest was not read
)

// Arrival says when a line was written, on the runner's clock: it was not there at After, and it was there at At.
type Arrival struct {
	After, At int64
	// Log is the path of the line's log, as kernel events have it. End is the number of bytes of the log up to the
	// end of the line. It is 0 for a line from before the command, and in a log that was cut or replaced.
	Log string
	End int64
}

// Problem is a fault in a log. Line counts from 1; 0 if the fault is not in a line.
type Problem struct {
	Code    string
	Path    string
	Line    int
	Message string
}

func (p *Problem) Error() string {
	at := p.Path
	if bytes.ContainsFunc([]byte(at), func(r rune) bool { return !unicode.IsPrint(r) }) {
		at = strconv.Quote(at)
	}
	if p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
	}
	return at + ": " + p.Message
}

// Account is the summary of a log.
type Account struct {
	// Lines counts the lines of the log, Bad those that were refused, and Bytes the bytes that were read.
	Lines, Bad uint64
	Bytes      int64
	// Problems are the first ones; More counts the rest.
	Problems []*Problem
	More     uint64
}

// Wrong reports whether evidence may be missing from the log. It is false if the only problem is that the log does
// not exist, or existed before.
func (a *Account) Wrong() bool {
	for _, p := range a.Problems {
		switch p.Code {
		case CodeMissing, CodeEmpty, CodeStale:
		default:
			return true
		}
	}
	return a.More > 0
}

// splitter splits what is read into lines.
type splitter struct {
	path    string
	take    func(line []byte, n int, at Arrival) error
	account *Account

	old     bool   // what comes was there before the command started
	takeOld bool   // import good lines from before the command
	passed  uint64 // lines from before the command that were not imported
	n       int    // lines of this file so far
	pos     int64  // bytes of this file so far
	anew    bool   // the log was cut or replaced earlier
	torn    []byte // the start of an incomplete line
	skip    bool   // the incomplete line is too long; skip the rest
	stopped bool   // the limits were reached
}

// restart starts a new file.
func (s *splitter) restart() {
	s.anew = s.anew || s.pos > 0
	s.n, s.pos, s.torn, s.skip = 0, 0, s.torn[:0], false
}

func (s *splitter) problem(code string, line int, format string, args ...any) {
	if len(s.account.Problems) >= maxProblems {
		s.account.More++
		return
	}
	s.account.Problems = append(s.account.Problems,
		&Problem{Code: code, Path: s.path, Line: line, Message: fmt.Sprintf(format, args...)})
}

// add processes what was read.
func (s *splitter) add(b []byte, at Arrival) {
	for len(b) > 0 && !s.stopped {
		i := bytes.IndexByte(b, '\n')
		rest := b[len(b):]
		part := b
		if i >= 0 {
			part, rest = b[:i], b[i+1:]
		}
		s.pos += int64(len(b) - len(rest))
		if at.End = s.pos; s.old || s.anew {
			at.End = 0
		}
		if s.account.Bytes += int64(len(b) - len(rest)); s.account.Bytes > maxBytes {
			s.limit()
			return
		}
		if !s.skip && len(s.torn)+len(part) > maxLine && s.old {
			s.passed++
			s.skip, s.torn = true, s.torn[:0]
		}
		if !s.skip && len(s.torn)+len(part) > maxLine {
			s.account.Lines++
			s.account.Bad++
			s.problem(CodeLine, s.n+1, "the line is longer than %d bytes", maxLine)
			s.skip, s.torn = true, s.torn[:0]
		}
		switch {
		case i < 0:
			if !s.skip {
				s.torn = append(s.torn, part...)
			}
		case s.skip:
			s.n, s.skip = s.n+1, false
		case len(s.torn) > 0:
			s.torn = append(s.torn, part...)
			s.line(s.torn, at)
			s.torn = s.torn[:0]
		default:
			s.line(part, at)
		}
		b = rest
	}
}

func (s *splitter) line(b []byte, at Arrival) {
	s.n++
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return
	}
	if s.account.Lines >= maxLines {
		s.limit()
		return
	}
	if s.old && !s.takeOld {
		s.passed++
		return
	}
	s.account.Lines++
	if err := s.take(b, s.n, at); err != nil {
		if s.old { // from an earlier run
			s.account.Lines--
			s.passed++
			return
		}
		s.account.Bad++
		s.problem(CodeLine, s.n, "%v", err)
	}
}

func (s *splitter) limit() {
	s.stopped = true
	s.torn = nil
	s.problem(CodeLimit, s.n, "more than %d lines or %d bytes; the rest was not read", maxLines, maxBytes)
}

// end processes a last line without a newline, if it is complete.
func (s *splitter) end(at Arrival) {
	if len(s.torn) == 0 || s.stopped {
		return
	}
	b := s.torn
	s.torn = nil
	s.line(b, at)
}

// splitPath splits the path of a log.
func splitPath(path string) (dir, base string, err error) {
	dir, base = filepath.Split(filepath.Clean(path))
	if base == "" || base == "." || base == ".." || !filepath.IsAbs(path) {
		return "", "", fmt.Errorf("%q is not the absolute path of a file", path)
	}
	return dir, base, nil
}
