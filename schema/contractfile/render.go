package contractfile

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Render prints the contract for people and prompts: its description, then each check with its command and what it
// expects. Control characters are escaped, so that a contract cannot control the reader's terminal.
func Render(w io.Writer, c *Contract) error {
	b := bufio.NewWriter(w)
	if d := strings.TrimSpace(c.Description); d != "" {
		fmt.Fprintf(b, "%s\n\n", schema.Lines(d))
	}
	fmt.Fprintf(b, "Done means that all of these pass (%d):\n", len(c.Checks))
	for i, check := range c.Checks {
		fmt.Fprintf(b, "\n%d. %s\n", i+1, schema.Lines(check.Name))
		prompt := "$ "
		for line := range strings.SplitSeq(strings.TrimRight(check.Command, "\n"), "\n") {
			fmt.Fprintf(b, "   %s%s\n", prompt, schema.Lines(line))
			prompt = "  "
		}
		fmt.Fprintf(b, "   expects %s\n", expectation(check))
	}
	if len(c.Protected) > 0 {
		fmt.Fprintf(b, "\nRestored to their state at the start before checking:\n")
		for _, g := range c.Protected {
			fmt.Fprintf(b, "   %s\n", schema.Lines(g))
		}
	}
	if c.Tests != "" {
		fmt.Fprintf(b, "\nHidden from the agent, and read-only for the checks:\n   %s\n", schema.Lines(c.Tests))
	}
	return b.Flush()
}

func expectation(c schema.Check) string {
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
