package view

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// Call is a tool call and the actions observed during it.
type Call struct {
	schema.Binding
	// Arguments are the arguments of the call in one line, cut: by its turn, by the model's answer that proposed it, or
	// the shell command that the agent reported. Empty where no layer has them.
	Arguments string `json:"arguments,omitempty"`
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

// maxArguments limits Call.Arguments, in characters.
const maxArguments = 160

// readArguments sets the arguments of calls.
func readArguments(ctx context.Context, src Source, calls []Call) error {
	byID, proposed := map[string]*Call{}, map[uint64][]*Call{}
	for i := range calls {
		c := &calls[i]
		byID[c.ToolCallID] = c
		if c.ModelSeq != nil {
			proposed[*c.ModelSeq] = append(proposed[*c.ModelSeq], c)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	layers := []string{schema.SDKPath, schema.TurnsPath}
	if len(proposed) > 0 {
		layers = append(layers, schema.ModelPath)
	}
	for it, err := range src.Items(ctx, layers...) {
		if err != nil {
			return err
		}
		switch {
		case it.SDK != nil && it.SDK.Argv != nil:
			if c := byID[it.SDK.ToolCallID]; c != nil && c.Arguments == "" {
				c.Arguments = Cut(QuoteArgs(it.SDK.Argv), maxArguments)
			}
		case it.Turn != nil:
			if c := byID[it.Turn.ToolCallID]; c != nil {
				c.Arguments = cmp.Or(argumentText(it.Turn.Parameters), c.Arguments)
			}
		case it.Model != nil:
			for _, c := range proposed[it.Model.Seq] {
				if p := proposalOf(c, it.Model.ToolCalls); p != nil {
					c.Arguments = cmp.Or(argumentText(p.Arguments), Cut(schema.OneLine(p.ArgumentsText), maxArguments),
						c.Arguments)
				}
			}
		}
	}
	return nil
}

// proposalOf returns which of an answer's tool calls is the call; nil: that is not known.
func proposalOf(c *Call, proposals []schema.ModelToolCall) *schema.ModelToolCall {
	for i := range proposals {
		p := &proposals[i]
		if p.ID != nil && *p.ID == c.ToolCallID ||
			c.MatchedBy == schema.MatchedByArguments && (p.Name == c.Tool || len(proposals) == 1) {
			return p
		}
	}
	return nil
}

// argumentText writes the values of a JSON object in their order, without its names, or another value as it is.
func argumentText(value jsontext.Value) string {
	d := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	named := d.PeekKind() == '{'
	if named {
		_, _ = d.ReadToken()
	}
	var values []string
	for {
		if named {
			if name, err := d.ReadToken(); err != nil || name.Kind() != '"' {
				break
			}
		}
		v, err := d.ReadValue()
		if err != nil {
			break
		}
		text := string(v)
		if v.Kind() == '"' {
			plain, _ := jsontext.AppendUnquote(nil, v) // it is valid
			text = string(plain)
		}
		values = append(values, text)
	}
	return Cut(schema.OneLine(strings.Join(values, ", ")), maxArguments)
}

func writeCall(b *bufio.Writer, c *Call) {
	line := "  " + schema.OneLine(c.ToolCallID)
	if c.Tool != "" {
		line += " " + schema.OneLine(c.Tool)
	}
	if c.PolicyDecision != "" {
		line += ", " + schema.OneLine(c.PolicyDecision)
	}
	if c.Arguments != "" {
		line += "  " + Cut(c.Arguments, 60)
	}
	switch {
	case c.Unobserved != "":
		line += "  not observed: " + strings.ReplaceAll(schema.OneLine(c.Unobserved), "_", " ")
	default:
		line += fmt.Sprintf("  %d events", c.KernelEventCount)
		if c.Method != "" {
			line += " by " + schema.OneLine(c.Method)
		}
	}
	if c.TStartNS != nil && c.TEndNS != nil {
		line += fmt.Sprintf("  %.1f s", float64(*c.TEndNS-*c.TStartNS)/1e9)
	}
	line += only(c.Failed, "  FAILED") + only(c.TStartNS != nil && c.TEndNS == nil, "  not ended")
	fmt.Fprintln(b, line)
	effects := c.Effects
	if c.Beyond != nil {
		fmt.Fprintf(b, "    ! %s, and it\n", cmp.Or(beyondWords[c.BeyondCode], schema.OneLine(c.BeyondCode)))
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
			fmt.Fprintf(b, "%s%-9s %s\n", indent, l.verb, Cut(schema.OneLine(v), 160))
		}
	}
	if e.Beyond > 0 {
		fmt.Fprintf(b, "%s… and %d more that did not fit\n", indent, e.Beyond)
	}
}
