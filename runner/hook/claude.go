package hook

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// claudeEvent is the input of a Claude Code hook. Older versions send no ToolUseID. Then overlapping calls of the
// same tool cannot be told apart.
type claudeEvent struct {
	Name      string                     `json:"hook_event_name"`
	SessionID string                     `json:"session_id"`
	Tool      string                     `json:"tool_name"`
	ToolUseID string                     `json:"tool_use_id"`
	Input     map[string]json.RawMessage `json:"tool_input"`
	Reason    string                     `json:"reason"`
	Calls     []struct {
		Tool      string `json:"tool_name"`
		ToolUseID string `json:"tool_use_id"`
	} `json:"tool_calls"`
}

// shellPrefix is the program in testdata/shims/claude-code that binds Bash calls by their environment, as
// CLAUDE_CODE_SHELL_PREFIX.
const shellPrefix = "assay_shell"

// These are compiled on first use, so that other commands need not wait for it.
var (
	agentVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^claude-code_(\d+)-(\d+)-(\d+)`) })
	// the ids that assay_shell accepts
	safeID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`) })
)

// claudeCode reads one event of Claude Code's hooks.
func claudeCode(s *session) error {
	data, err := s.readEvent()
	if err != nil || s.log == nil {
		return err
	}
	var e claudeEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("the event is not Claude Code's: %w", err)
	}
	if m := agentVersion().FindStringSubmatch(s.env("AI_AGENT")); m != nil {
		s.log.base.SDKVersion = strings.Join(m[1:], ".")
	}
	id := cmp.Or(e.ToolUseID, cmp.Or(e.SessionID, "session")+":"+e.Tool)
	switch e.Name {
	case "PreToolUse":
		if err := s.report(just(agentlog.ToolCallStarted, id, e.Tool)); err != nil {
			return err
		}
		return mark(s, e, id)
	case "PostToolUse":
		return s.report(just(agentlog.ToolCallCompleted, id, e.Tool))
	case "PostToolUseFailure":
		return s.report(func([]event) []event {
			return []event{{EventType: agentlog.ToolCallCompleted, ToolCallID: id, Tool: e.Tool, Failed: true}}
		})
	case "PostToolBatch": // the only event after a call that was not permitted
		return s.report(func(open []event) (ends []event) {
			for _, call := range e.Calls {
				for _, o := range open {
					if o.ToolCallID == call.ToolUseID {
						ends = append(ends, event{EventType: agentlog.ToolCallCompleted, ToolCallID: call.ToolUseID,
							Tool: call.Tool})
					}
				}
			}
			return ends
		})
	case "SessionEnd":
		if e.Reason != "clear" && e.Reason != "resume" { // another session follows
			return s.report(just(agentlog.RunFinished, "", ""))
		}
	}
	return nil
}

// mark puts a call's id into a comment before the command of a Bash call, for assay_shell. The comment does not
// change which permission rules match.
func mark(s *session, e claudeEvent, id string) error {
	var command string
	if e.Tool != "Bash" || path.Base(s.env("CLAUDE_CODE_SHELL_PREFIX")) != shellPrefix || !safeID().MatchString(id) ||
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
