package hook

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ErrAgent is wrapped by [Run]'s error for an unknown agent.
var ErrAgent = errors.New("unknown agent")

// session is one call of Run.
type session struct {
	in  io.Reader
	out io.Writer
	env func(string) string
	log *log // nil outside a run: then nothing is reported
}

// reader reads the events of one agent program.
type reader func(*session) error

// readers are those of the known agents, by shim name.
var readers = map[string]reader{
	"claude-code": claudeCode,
	"gemini-cli":  geminiCLI,
	"codex":       codex,
	"qwen-code":   claudeCode,
}

// Agents lists the agents whose hooks or events [Run] reads, sorted.
func Agents() []string { return slices.Sorted(maps.Keys(readers)) }

// Run reads agent's events from in and reports the tool calls in them to the run that the environment names. It
// writes to out what the agent expects. The error says what could not be reported, which is no reason to deny a call.
func Run(agent string, in io.Reader, out io.Writer, env func(string) string) error {
	read, ok := readers[agent]
	if !ok {
		return fmt.Errorf("%w %q (known: %s)", ErrAgent, agent, strings.Join(Agents(), ", "))
	}
	return read(&session{in, out, env, openLog(agent, env)})
}

// maxEvent limits one event, in bytes. An event can contain a tool's result.
const maxEvent = 64 << 20

// readEvent reads one complete event.
func (s *session) readEvent() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(s.in, maxEvent+1))
	if err == nil && len(data) > maxEvent {
		err = fmt.Errorf("the event is larger than %d bytes", maxEvent)
	}
	return data, err
}

// report adds lines to the log. Without a log it does nothing.
func (s *session) report(lines func(open []event) []event) error {
	if s.log == nil {
		return nil
	}
	return s.log.add(lines)
}

// just makes one line, regardless of open calls.
func just(kind, id, tool string) func([]event) []event {
	return func([]event) []event { return []event{{EventType: kind, ToolCallID: id, Tool: tool}} }
}
