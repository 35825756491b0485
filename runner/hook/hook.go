package hook

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// ErrAgent is returned by [Run], wrapped with the name, for an agent that it does not know.
var ErrAgent = errors.New("unknown agent")

// session is one call of Run: what a reader reads from, writes to and reports to.
type session struct {
	in  io.Reader
	out io.Writer
	env func(string) string
	log *log // nil outside of a run: then nothing is reported
}

// reader reads the events of one agent program.
type reader func(*session) error

// agents are the known agents, by the names of their shims.
var agents = map[string]reader{
	"claude-code": claudeCode,
	"gemini-cli":  geminiCLI,
	"codex":       codex,
}

// Agents lists the agents whose hooks or events [Run] reads, sorted.
func Agents() []string { return slices.Sorted(maps.Keys(agents)) }

// Run reads agent's events from in and reports the tool calls in them. The environment
// names the run. Run writes to out what the agent expects. An error says what could not be
// reported. It is no reason to deny a call.
func Run(agent string, in io.Reader, out io.Writer, env func(string) string) error {
	read, ok := agents[agent]
	if !ok {
		return fmt.Errorf("%w %q (known: %s)", ErrAgent, agent, strings.Join(Agents(), ", "))
	}
	return read(&session{in, out, env, openLog(agent, env)})
}

// maxEvent bounds one event, in bytes. An event can contain a tool's result.
const maxEvent = 64 << 20

// readEvent reads one event, whole.
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

// just makes one line, whatever calls are open.
func just(kind, id, tool string) func([]event) []event {
	return func([]event) []event { return []event{{EventType: kind, ToolCallID: id, Tool: tool}} }
}

// mark puts a call's id into a comment before the command of a Bash call, for
// assay_shell. The comment does not change which permission rules match.
func (s *session) mark(e claudeEvent, id string) error {
	var command string
	if e.Tool != "Bash" || path.Base(s.env("CLAUDE_CODE_SHELL_PREFIX")) != shellPrefix || !plainID().MatchString(id) ||
		json.Unmarshal(e.Input["command"], &command) != nil || command == "" {
		return nil
	}
	marked, err := json.Marshal("# ASSAY_TOOL_CALL_ID=" + id + "\n" + command)
	if err != nil {
		return err
	}
	e.Input["command"] = marked
	type specific struct {
		Event string                     `json:"hookEventName"`
		Input map[string]json.RawMessage `json:"updatedInput"`
	}
	return json.NewEncoder(s.out).Encode(map[string]specific{"hookSpecificOutput": {e.Name, e.Input}})
}

func (s *session) codexLine(line []byte) error {
	var e codexEvent
	if json.Unmarshal(line, &e) != nil {
		return nil // not an event: a message for people
	}
	tool := e.Item.Type
	if e.Item.Tool != "" {
		tool = e.Item.Tool
	}
	switch {
	case e.Type == "item.started" && codexTools[e.Item.Type]:
		start := event{EventType: agentlog.ToolCallStarted, ToolCallID: e.Item.ID, Tool: tool}
		if len(e.Item.Command) <= agentlog.MaxArgv && !strings.ContainsRune(e.Item.Command, 0) {
			start.Argv = words(e.Item.Command)
		}
		return s.report(func([]event) []event { return []event{start} })
	case e.Type == "item.completed" && codexTools[e.Item.Type]:
		return s.report(func(open []event) []event {
			end := event{EventType: agentlog.ToolCallCompleted, ToolCallID: e.Item.ID, Tool: tool}
			if !has(open, e.Item.ID) { // Codex sends no start for some kinds of items
				return []event{{EventType: agentlog.ToolCallStarted, ToolCallID: e.Item.ID, Tool: tool}, end}
			}
			return []event{end}
		})
	case e.Type == "turn.completed":
		return s.report(just(agentlog.RunFinished, "", ""))
	case e.Type == "turn.failed":
		return s.report(just(agentlog.RunFailed, "", ""))
	}
	return nil
}
