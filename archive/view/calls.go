package view

import (
	"bufio"
	"cmp"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Call is a tool call and the actions observed during it.
type Call struct {
	schema.Binding
	// Beyond is what the call should not have done, because of its tool's name, because policy denied it, or because
	// nobody reported it. BeyondCode says which. Nil if there is nothing.
	Beyond     *schema.Effects `json:"beyond_claim,omitempty"`
	BeyondCode string          `json:"beyond_code,omitempty"`
	// Unobserved says why no events are bound to the call; empty otherwise.
	Unobserved string `json:"unobserved,omitempty"`
}

var beyondWords = map[string]string{
	"beyond_claim": "its name says that it only reads",
	"denied_call":  "policy denied it",
	"unknown_call": "nobody reported it",
}

var unreportedWords = map[string]string{
	"edge":    "around a start or an end, and not surely part of a call",
	"overlap": "while several calls were open",
	"outside": "while no call was open",
}

func writeCall(b *bufio.Writer, c *Call) {
	line := "  " + Clean(c.ToolCallID)
	if c.Tool != "" {
		line += " " + Clean(c.Tool)
	}
	if c.PolicyDecision != "" {
		line += ", " + Clean(c.PolicyDecision)
	}
	switch {
	case c.Unobserved != "":
		line += "  not observed: " + strings.ReplaceAll(Clean(c.Unobserved), "_", " ")
	default:
		line += fmt.Sprintf("  %d events", c.KernelEventCount)
		if c.Method != "" {
			line += " by " + Clean(c.Method)
		}
	}
	if c.TStartNS != nil && c.TEndNS != nil {
		line += fmt.Sprintf("  %.1f s", float64(*c.TEndNS-*c.TStartNS)/1e9)
	}
	line += only(c.Failed, "  FAILED") + only(c.TStartNS != nil && c.TEndNS == nil, "  not ended")
	fmt.Fprintln(b, line)
	effects := c.Effects
	if c.Beyond != nil {
		fmt.Fprintf(b, "    ! %s, and it\n", cmp.Or(beyondWords[c.BeyondCode], Clean(c.BeyondCode)))
		writeEffects(b, "    ! ", c.Beyond)
		if len(c.Beyond.Written) > 0 {
			effects.Written = nil
		}
		if len(c.Beyond.Hosts) > 0 {
			effects.Hosts = nil
		}
		if len(c.Beyond.Commands) > 0 {
			effects.Commands = nil
		}
	}
	writeEffects(b, "    ", &effects)
}

// writeEffects writes the effects other than reads.
func writeEffects(b *bufio.Writer, indent string, e *schema.Effects) {
	for _, l := range []struct {
		verb  string
		items []string
	}{{"wrote", e.Written}, {"contacted", e.Hosts}, {"ran", e.Commands}} {
		for i, v := range l.items {
			if i == 8 {
				fmt.Fprintf(b, "%s%-9s … and %d more\n", indent, l.verb, len(l.items)-i)
				break
			}
			fmt.Fprintf(b, "%s%-9s %s\n", indent, l.verb, Cut(Clean(v), 160))
		}
	}
	if e.Beyond > 0 {
		fmt.Fprintf(b, "%s… and %d more that did not fit\n", indent, e.Beyond)
	}
}
