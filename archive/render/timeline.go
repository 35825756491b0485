package render

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// side is something that happened and is not a kernel event.
type side struct {
	tns  int64
	tell func(*teller)
}

// maxSides bounds what is kept of the other layers than the kernel's.
const maxSides = 200_000

// sides collects what is not a kernel event, to print it in the order of time.
type sides struct {
	list []side
	lost int
	// began is when the command was started. The times of a terminal recording count from a few
	// milliseconds later.
	began int64
}

func (s *sides) add(tns int64, tell func(*teller)) {
	if len(s.list) >= maxSides {
		s.lost++
		return
	}
	s.list = append(s.list, side{tns, tell})
}

func (s *sides) sort() {
	sort.SliceStable(s.list, func(i, j int) bool { return s.list[i].tns < s.list[j].tns })
}

// until prints what happened before tns.
func (s *sides) until(t *teller, tns int64) {
	for len(s.list) > 0 && s.list[0].tns <= tns {
		s.list[0].tell(t)
		s.list = s.list[1:]
	}
}

// record adds a line of another layer than the kernel's.
func (s *sides) record(r *schema.Record) {
	switch {
	case r.Event != nil:
		e := r.Event
		if e.Type == schema.ProcessStarted {
			s.began = e.TNS
		}
		if text := lifecycle(e); text != "" {
			s.add(e.TNS, func(t *teller) { t.Heading(e.TNS, text) })
		}
	case r.Turn != nil:
		s.turn(r.Turn)
	case r.Model != nil:
		s.model(r.Model)
	case r.SDK != nil:
		e := r.SDK
		if strings.HasPrefix(e.EventType, "tool_call") {
			s.add(e.TNS, func(t *teller) {
				t.Heading(e.TNS, strings.TrimSpace("the agent says: "+strings.ReplaceAll(e.EventType, "_", " ")+" "+
					e.Tool+" "+e.ToolCallID))
			})
		}
	case r.Policy != nil:
		e := r.Policy
		s.add(e.TNS, func(t *teller) {
			t.Heading(e.TNS, strings.TrimSpace("policy: "+e.Decision+" "+e.Tool+" "+e.ToolCallID))
		})
	}
}

// model prints a request to a model at the time when its answer ended, which is before the calls that it proposes are
// done.
func (s *sides) model(e *schema.ModelEvent) {
	s.add(e.Timings.EndNS, func(t *teller) {
		t.Heading(e.Timings.EndNS, modelText(e))
		for i := range e.ToolCalls {
			t.detail("proposes " + proposalText(&e.ToolCalls[i]))
		}
	})
}

// modelText puts a request to a model into words.
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

// proposalText puts a tool call in an answer into words.
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

func (s *sides) turn(turn *schema.Turn) {
	text := fmt.Sprintf("turn %d: %s %s", turn.Index, turn.Tool, turn.ToolCallID)
	s.add(turn.TStartNS, func(t *teller) {
		t.Heading(turn.TStartNS, text)
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
		s.add(turn.TEndNS, func(t *teller) {
			t.Heading(turn.TEndNS, strings.TrimSpace(fmt.Sprintf("turn %d ended  %s", turn.Index, end)))
			if len(turn.Output) > 0 {
				t.detail("answer " + string(turn.Output))
			}
		})
	}
}

// lifecycle puts an event of the run itself into words. It is empty for an event that show
// leaves out.
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

// cast adds one line of a terminal recording (asciicast 3). It gets the time of the line before,
// and returns that of this one.
func (s *sides) cast(line []byte, at time.Duration) (time.Duration, error) {
	var event []any
	if len(line) == 0 || line[0] != '[' {
		return at, nil // the header
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return at, err
	}
	if len(event) != 3 {
		return at, nil
	}
	wait, _ := event[0].(float64)
	code, _ := event[1].(string)
	text, _ := event[2].(string)
	at += time.Duration(wait * float64(time.Second))
	if code == "o" {
		text = withoutEscapes(text)
		tns := s.began + int64(at)
		s.add(tns, func(t *teller) { t.Output(tns, text) })
	}
	return at, nil
}

// recording adds a terminal recording. Its times count from about the start of the command. The
// lifecycle, which comes first, says when that was.
func (s *sides) recording(m io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(m, maxCast))
	if err != nil {
		return err
	}
	var at time.Duration
	for line := range bytes.Lines(data) {
		if at, err = s.cast(bytes.TrimSuffix(line, []byte{'\n'}), at); err != nil {
			return nil // a torn last line
		}
	}
	return nil
}
