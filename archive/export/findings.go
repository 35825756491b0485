package export

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/assay-run/assay-run/archive/view"
)

// State is what became of a case.
type State string

// States. Unknown could not be told from the evidence; Skipped is an unknown
// that was allowed.
const (
	Passed  State = "passed"
	Failed  State = "failed"
	Unknown State = "unknown"
	Skipped State = "skipped"
)

// Suite is the cases of one bundle.
type Suite struct {
	// Name is the bundle's file, and RunID and Identity say which it is.
	Name, RunID, Identity string
	// Started is RFC 3339, and Seconds how long the run took.
	Started string
	Seconds float64
	Cases   []Case
}

// Case is one thing that was judged.
type Case struct {
	// Rule is the case's stable name.
	Rule    string
	State   State
	Message string
	Details []Detail
	// Milliseconds is how long the case took, 0 when it took no time.
	Milliseconds int64
}

// Detail is one thing that was found, or one reason why nothing can be told.
type Detail struct {
	Text string
	// Layer and Line name where in the bundle it is; Line counts from 1.
	Layer string
	Line  uint64
}

// text of the case's details, one a line.
func (c *Case) details() string {
	var b strings.Builder
	for _, d := range c.Details {
		b.WriteString(d.Text)
		if d.Layer != "" {
			fmt.Fprintf(&b, " (%s", d.Layer)
			if d.Line > 0 {
				fmt.Fprintf(&b, ":%d", d.Line)
			}
			b.WriteString(")")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// plain makes text from evidence fit for a document, line by line: it escapes control
// characters, which XML cannot hold, and marks that turn text around.
func plain(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = view.Clean(line)
	}
	return strings.Join(lines, "\n")
}

// cut shortens s to n bytes, at a character, and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = " …"
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// count counts the cases of a state.
func count(suites []Suite, state State) (n int) {
	for _, s := range suites {
		for _, c := range s.Cases {
			if c.State == state {
				n++
			}
		}
	}
	return n
}

// SortDetails puts details in the order of their texts.
func SortDetails(list []Detail) {
	slices.SortFunc(list, func(a, b Detail) int { return strings.Compare(a.Text, b.Text) })
}
