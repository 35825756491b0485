package contract

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Render prints the contract for people and prompts: its description, then each check with its command and what it
// expects. Control characters are escaped, so that a contract cannot control the reader's terminal.
func Render(w io.Writer, c *Contract) error {
	b := bufio.NewWriter(w)
	if d := strings.TrimSpace(c.Description); d != "" {
		fmt.Fprintf(b, "%s\n\n", printable(d))
	}
	fmt.Fprintf(b, "Done means that all of these pass (%d):\n", len(c.Checks))
	for i, check := range c.Checks {
		fmt.Fprintf(b, "\n%d. %s\n", i+1, printable(check.Name))
		prompt := "$ "
		for line := range strings.SplitSeq(strings.TrimRight(check.Command, "\n"), "\n") {
			fmt.Fprintf(b, "   %s%s\n", prompt, printable(line))
			prompt = "  "
		}
		fmt.Fprintf(b, "   expects %s\n", expectation(check))
	}
	if len(c.Protected) > 0 {
		fmt.Fprintf(b, "\nRestored to their state at the start before checking:\n")
		for _, g := range c.Protected {
			fmt.Fprintf(b, "   %s\n", printable(g))
		}
	}
	return b.Flush()
}

func expectation(c Check) string {
	var parts []string
	if c.ExpectExitZero {
		parts = append(parts, "exit status 0")
	}
	if c.OutputContains != nil {
		parts = append(parts, fmt.Sprintf("%q in the output", *c.OutputContains))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing")
	}
	return fmt.Sprintf("%s, within %d s", strings.Join(parts, " and "), c.TimeoutSecs)
}

// printable escapes every character of s that could control a terminal or reorder a line, except newlines and tabs.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}
