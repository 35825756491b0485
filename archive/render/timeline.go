package render

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// entry is something to print that is not a kernel event.
type entry struct {
	tns   int64
	print func(*printer)
}

// maxEntries limits the entries of a timeline.
const maxEntries = 200_000

// timeline collects everything but kernel events, to print it in the order of time.
type timeline struct {
	list []entry
	lost int // entries beyond maxEntries
	// began is the start of the command. The times of a terminal recording count from a few milliseconds later.
	began int64
}

func (s *timeline) add(tns int64, print func(*printer)) {
	if len(s.list) >= maxEntries {
		s.lost++
		return
	}
	s.list = append(s.list, entry{tns, print})
}

func (s *timeline) sort() {
	slices.SortStableFunc(s.list, func(a, b entry) int { return cmp.Compare(a.tns, b.tns) })
}

// until prints the entries up to tns, and removes them.
func (s *timeline) until(t *printer, tns int64) {
	for len(s.list) > 0 && s.list[0].tns <= tns {
		s.list[0].print(t)
		s.list = s.list[1:]
	}
}

// record adds a line of any layer but the kernel's.
func (s *timeline) record(r *schema.Record) {
	switch {
	case r.Event != nil:
		e := r.Event
		if e.Type == schema.ProcessStarted {
			s.began = e.TNS
		}
		if text := lifecycle(e); text != "" {
			s.add(e.TNS, func(t *printer) { t.heading(e.TNS, text) })
		}
	case r.Turn != nil:
		s.turn(r.Turn)
	case r.Model != nil:
		s.model(r.Model)
	case r.SDK != nil:
		e := r.SDK
		if strings.HasPrefix(e.EventType, "tool_call") {
			failed := ""
			if e.Failed {
				failed = ", which FAILED"
			}
			s.add(e.TNS, func(t *printer) {
				t.heading(e.TNS, strings.TrimSpace("the agent says: "+strings.ReplaceAll(e.EventType, "_", " ")+" "+
					e.Tool+" "+e.ToolCallID+failed))
			})
		}
	case r.Policy != nil:
		e := r.Policy
		s.add(e.TNS, func(t *printer) {
			t.heading(e.TNS, strings.TrimSpace("policy: "+e.Decision+" "+e.Tool+" "+e.ToolCallID))
		})
	}
}

// model adds a request to a model at the end of its answer, so that it comes before the calls that it proposes.
func (s *timeline) model(e *schema.ModelEvent) {
	s.add(e.Timings.EndNS, func(t *printer) {
		t.heading(e.Timings.EndNS, modelText(e))
		for i := range e.ToolCalls {
			t.detail("proposes " + proposalText(&e.ToolCalls[i]))
		}
	})
}

// modelText describes a request to a model.
func modelText(e *schema.ModelEvent) string {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	if e.Refused != nil {
		return fmt.Sprintf("model gateway: refused %s %s (%s)", e.Method, e.Path, *e.Refused)
	}
	said := strings.TrimSpace("model " + cmp.Or(text(e.ResponseModel), text(e.RequestModel), text(e.API)))
	switch {
	case e.ErrorType != nil:
		said += ": " + *e.ErrorType
	case e.Status != nil && *e.Status >= 400:
		said += fmt.Sprintf(": status %d", *e.Status)
	}
	var used []string
	for _, n := range []struct {
		tokens *int64
		word   string
	}{{e.Usage.InputTokens, "input"}, {e.Usage.OutputTokens, "output"}} {
		if n.tokens != nil {
			used = append(used, fmt.Sprintf("%d %s", *n.tokens, n.word))
		}
	}
	if len(used) > 0 {
		said += ", tokens: " + strings.Join(used, ", ")
	}
	return said
}

// proposalText describes a tool call in a model's answer.
func proposalText(c *schema.ModelToolCall) string {
	text := c.Name
	if c.ID != nil {
		text += " " + *c.ID
	}
	if c.ProviderExecuted {
		text += ", which the provider runs"
	}
	if args := cmp.Or(string(c.Arguments), c.ArgumentsText); args != "" {
		text += " with " + args
	}
	return text
}

func (s *timeline) turn(turn *schema.Turn) {
	text := fmt.Sprintf("turn %d: %s %s", turn.Index, turn.Tool, turn.ToolCallID)
	s.add(turn.TStartNS, func(t *printer) {
		t.heading(turn.TStartNS, text)
		if turn.Prompt != nil {
			t.detail("asked: " + *turn.Prompt)
		}
		if len(turn.Parameters) > 0 {
			t.detail("with " + string(turn.Parameters))
		}
	})
	end := ""
	switch {
	case turn.RejectedBy != "":
		end = "rejected by " + turn.RejectedBy
		if turn.PolicyRejected != nil {
			end += ": rule " + turn.PolicyRejected.Rule
		}
	case turn.Error != "":
		end = "failed: " + turn.Error
	case turn.VerifierVerdict != "" && turn.VerifierVerdict != schema.VerdictNotRun:
		end = "verdict: " + turn.VerifierVerdict
	}
	if len(turn.Output) > 0 || end != "" {
		s.add(turn.TEndNS, func(t *printer) {
			t.heading(turn.TEndNS, strings.TrimSpace(fmt.Sprintf("turn %d ended  %s", turn.Index, end)))
			if len(turn.Output) > 0 {
				t.detail("answer " + string(turn.Output))
			}
		})
	}
}

// lifecycle describes an event of the lifecycle layer. It is empty if the event is not shown.
func lifecycle(e *schema.Event) string {
	switch e.Type {
	case schema.RunStarted:
		return "the run started: " + view.QuoteArgs(e.Command)
	case schema.RunFinished:
		return "the run finished"
	case schema.ProcessExited:
		switch {
		case e.ExitCode != nil && e.ExitCode.Valid:
			return fmt.Sprintf("the command exited with %d", e.ExitCode.Value)
		}
		return strings.TrimSpace("the command was ended by a signal " + e.SignalName)
	case schema.SignalForwarded:
		return "signal passed on: " + e.SignalName
	case schema.Timeout:
		return "the run timed out"
	case schema.Cancelled:
		return "the run was cancelled"
	case schema.LimitHit, schema.OOMKill:
		return strings.TrimSpace(fmt.Sprintf("%s %s", strings.ReplaceAll(e.Type, "_", " "), e.Limit))
	case schema.LeftoversKilled:
		return schema.Count(e.Count, "process outlived the command and was ended",
			"processes outlived the command and were ended")
	case schema.ServersKept:
		return schema.Count(e.Count, "process of a server that the task asks for was kept for the checks",
			"processes of servers that the task asks for were kept for the checks")
	case schema.StartFailed, schema.RecorderError:
		return strings.ReplaceAll(e.Type, "_", " ") + ": " + e.Message
	case schema.CheckCompleted:
		if e.Passed != nil && *e.Passed {
			return "check " + e.Check + " passed"
		}
		return "check " + e.Check + " failed"
	}
	return ""
}

// cast adds one line of a terminal recording (asciicast 3). at is the time of the line before. It returns the time of
// this line.
func (s *timeline) cast(line []byte, at time.Duration) (time.Duration, error) {
	if len(line) == 0 || line[0] != '[' {
		return at, nil // the header
	}
	wait, code, text, ok := castEvent(line)
	if !ok {
		return at, errRecording
	}
	at += time.Duration(wait * float64(time.Second))
	if code == "o" {
		text = withoutEscapes(text)
		tns := s.began + int64(at)
		s.add(tns, func(t *printer) { t.output(tns, text) })
	}
	return at, nil
}

// recording adds a terminal recording. Its times count from the start of the command, which the lifecycle layer must
// have given already.
func (s *timeline) recording(m io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(m, maxCast))
	if err != nil {
		return err
	}
	var at time.Duration
	for line := range bytes.Lines(data) {
		if at, err = s.cast(bytes.TrimSuffix(line, []byte{'\n'}), at); err != nil {
			return nil // the last line is incomplete
		}
	}
	return nil
}
