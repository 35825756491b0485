package hook

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ErrAgent is returned by [Run], wrapped with the name, for an agent that it does not know.
var ErrAgent = errors.New("unknown agent")

// session is what a reader works with.
type session struct {
	in  io.Reader
	out io.Writer
	env func(string) string
	log *log // nil outside of a run: then nothing is reported
}

// reader reads what one agent says.
type reader func(*session) error

// agents are the known agents, by the names of their shims.
var agents = map[string]reader{
	"claude-code": claudeCode,
	"gemini-cli":  geminiCLI,
	"codex":       codex,
}

// Agents lists the agents whose hooks or events [Run] reads, sorted.
func Agents() []string { return slices.Sorted(maps.Keys(agents)) }

// Run reads what agent says on in, reports the calls in it to the run that env tells
// of, and writes to out what the agent expects. The error tells of what could not be
// reported: it is no reason for a call not to be made.
func Run(agent string, in io.Reader, out io.Writer, env func(string) string) error {
	read, ok := agents[agent]
	if !ok {
		return fmt.Errorf("%w %q (known: %s)", ErrAgent, agent, strings.Join(Agents(), ", "))
	}
	return read(&session{in, out, env, openLog(agent, env)})
}

// maxEvent bounds what a hook is told of one call, in bytes: tool results can be large.
const maxEvent = 64 << 20

// readEvent reads one event, whole.
func (s *session) readEvent() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(s.in, maxEvent+1))
	if err == nil && len(data) > maxEvent {
		err = fmt.Errorf("the event is larger than %d bytes", maxEvent)
	}
	return data, err
}

// report adds lines to the log, if there is one.
func (s *session) report(lines func(open []event) []event) error {
	if s.log == nil {
		return nil
	}
	return s.log.add(lines)
}

func just(kind, id, tool string) func([]event) []event {
	return func([]event) []event { return []event{{EventType: kind, ToolCallID: id, Tool: tool}} }
}
