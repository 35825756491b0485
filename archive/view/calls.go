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
	// Beyond is what it did that its tool's name rules out, or that policy
	// denied; BeyondCode tells which.
	Beyond     *schema.Effects `json:"beyond_claim,omitempty"`
	BeyondCode string          `json:"beyond_code,omitempty"`
	// Unobserved says why nothing is known to belong to it; empty otherwise.
	Unobserved string `json:"unobserved,omitempty"`
}

// correlate takes in correlation-report.json: calls that did what they did not
// claim first, then in the order of the report.
func (s *Summary) correlate(r *schema.CorrelationReport, limit int) {
	s.CallStatus, s.Ambiguities = r.Status, r.Ambiguities
	beyond := make(map[string]*schema.Unreported)
	for i, u := range r.ObservedNotReported {
		switch u.Code {
		case "beyond_claim", "denied_call", "unknown_call":
			if len(u.ToolCallIDs) == 1 {
				beyond[u.ToolCallIDs[0]] = &r.ObservedNotReported[i]
			}
		default:
			s.Unreported = append(s.Unreported, u)
		}
	}
	unseen := make(map[string]string)
	for _, u := range r.ReportedNotObserved {
		unseen[u.ToolCallID] = u.Code
	}
	first, rest := []Call{}, []Call{}
	for _, b := range r.Bindings {
		c := Call{Binding: b, Unobserved: unseen[b.ToolCallID]}
		if u := beyond[b.ToolCallID]; u != nil {
			c.Beyond, c.BeyondCode = &u.Effects, u.Code
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	all := append(first, rest...)
	s.Calls = List[Call]{Items: all, Total: uint64(len(all))}
	if limit > 0 {
		s.Calls.Items = all[:min(limit, len(all))]
	}
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

func (s *Summary) writeCalls(b *bufio.Writer, limit int) {
	if len(s.Calls.Items) == 0 {
		return
	}
	fmt.Fprintf(b, "  correlation %s\n", Clean(s.CallStatus))
	items := s.Calls.Items[:min(limit, len(s.Calls.Items))]
	for i := range items {
		writeCall(b, &items[i])
	}
	if more := s.Calls.Total - uint64(len(items)); more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
	for _, a := range s.Ambiguities[:min(len(s.Ambiguities), 10)] {
		fmt.Fprintf(b, "  ambiguous: %s\n", Cut(Clean(a), 200))
	}
	if more := len(s.Ambiguities) - 10; more > 0 {
		fmt.Fprintf(b, "  … and %d more ambiguities\n", more)
	}
	if len(s.Unreported) == 0 {
		return
	}
	fmt.Fprintf(b, "not part of any reported tool call\n")
	for _, u := range s.Unreported {
		title := unreportedWords[u.Code]
		if u.Code == "edge" && len(u.ToolCallIDs) > 0 {
			title = Cut(Clean(strings.Join(u.ToolCallIDs, ", ")), 120) + ": " + title
		}
		fmt.Fprintf(b, "  %s\n", cmp.Or(title, Clean(u.Code)))
		writeEffects(b, "    ", &u.Effects)
	}
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

// writeEffects writes what was touched other than by reading.
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
