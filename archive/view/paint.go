package view

import (
	"regexp"
	"strings"
	"sync"
)

// Painter colours a line of a page. It adds only SGR sequences.
type Painter func(line string) string

const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// Colours returns a Painter that colours the first group of each regular expression. bad is applied first, then good,
// then doubtful, each to the line as coloured so far. The expressions are compiled at the first line, since most
// commands print no table.
func Colours(good, doubtful, bad string) Painter {
	type word struct {
		style string
		where *regexp.Regexp
	}
	words := sync.OnceValue(func() (words []word) {
		for _, w := range [][2]string{{red, bad}, {green, good}, {yellow, doubtful}} {
			if w[1] != "" {
				words = append(words, word{w[0], regexp.MustCompile(w[1])})
			}
		}
		return words
	})
	return func(line string) string {
		for _, w := range words() {
			if at := w.where.FindStringSubmatchIndex(line); at != nil {
				line = line[:at[2]] + w.style + line[at[2]:at[3]] + reset + line[at[3]:]
			}
		}
		return line
	}
}

// Rows colours tables of events and of calls: denials and failures of processes in red, claimed arguments in yellow.
// ENOENT is too common for a colour. A row may begin with a bundle's name. A row of a layer other than the kernel's
// ends with JSON.
var Rows = Colours("", `  (\[claimed\])$`,
	`^(?:.{24} )?(?: *[0-9.]+ +[0-9]+  \S+ +|\S+ +\S+ +| *[0-9.]+ +-  .*[^\\]"decision":")(blocked|EACCES|EPERM|EROFS|SIG[A-Z0-9]+|exit [1-9][0-9]*|deny)(?:$|[ "])`)

// Inspection colours the page of a [Summary]: headings are bold, and problems are red.
func Inspection(line string) string {
	for _, start := range wrong {
		if strings.HasPrefix(line, start) {
			return red + line + reset
		}
	}
	switch {
	case line == "" || line[0] == ' ':
		return line
	case len(line) > keyWidth && isRow(line):
		return bold + line[:keyWidth] + reset + line[keyWidth:] // only the key
	}
	return bold + line + reset
}

// keyWidth is the column at which the text of a row in the head begins.
const keyWidth = 11

// isRow reports whether a line of the head is a row, not a heading.
func isRow(s string) bool { return s[keyWidth-1] == ' ' && !counted().MatchString(s) }

// counted matches the count at the end of a heading.
var counted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\([0-9]+\)$`) })

// wrong are the beginnings of lines about problems.
var wrong = []string{
	"contract   failed", "           failed ", "           not run ", "protected  ", "    ! ", "kernel     absent",
	"kernel     partial", "denied (", "files read that may hold secrets (", "outcome    timed out", "outcome    killed",
}
