package hook

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// codexEvent is a line of "codex exec --json".
type codexEvent struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Item     struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Server  string `json:"server"`
		Tool    string `json:"tool"`
		Command string `json:"command"`
	} `json:"item"`
}

// codexTools are the types of items that are tool calls.
var codexTools = map[string]bool{
	"command_execution": true, "file_change": true, "mcp_tool_call": true, "web_search": true, "collab_tool_call": true,
}

// codex passes on the events of "codex exec --json", and reports the calls among them. It passes them on even if it
// cannot report them.
func codex(s *session) error {
	var failed error
	lines := bufio.NewReaderSize(s.in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > maxEvent {
			return fmt.Errorf("a line is larger than %d bytes", maxEvent)
		}
		// Report it first: the reader of the output may act on it.
		if failed == nil && s.log != nil {
			failed = codexLine(s, line)
		}
		if _, werr := s.out.Write(line); werr != nil {
			return errors.Join(failed, werr)
		}
		if err == io.EOF {
			return failed
		}
		if err != nil {
			return errors.Join(failed, err)
		}
	}
}

// words splits a command line that was quoted for a POSIX shell. It returns nil if the quoting is invalid.
func words(line string) (all []string) {
	var word []byte
	quote, begun := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'':
			if i++; i == len(line) {
				return nil
			}
			if quote == '"' && !strings.ContainsRune("$`\"\\", rune(line[i])) {
				word = append(word, '\\')
			}
			word, begun = append(word, line[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if begun {
				all = append(all, string(word))
			}
			word, begun = word[:0], false
		default:
			word, begun = append(word, c), true
		}
	}
	if quote != 0 {
		return nil
	}
	if begun {
		all = append(all, string(word))
	}
	return all
}

func codexLine(s *session, line []byte) error {
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
