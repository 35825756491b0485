package hook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// geminiEvent is the input of a Gemini CLI hook. It has no call id.
type geminiEvent struct {
	Name      string         `json:"hook_event_name"`
	SessionID string         `json:"session_id"`
	Tool      string         `json:"tool_name"`
	Input     jsontext.Value `json:"tool_input"`
}

// geminiCLI reads one event of Gemini CLI's hooks. It makes a call's id from the session, the tool and the arguments,
// plus random letters. If equal calls overlap, the first start is matched with the first end.
func geminiCLI(s *session) error {
	data, err := s.readEvent()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(s.out, "{}\n"); err != nil || s.log == nil {
		return err
	}
	var e geminiEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("the event is not Gemini CLI's: %w", err)
	}
	call := geminiCall(e)
	switch e.Name {
	case "BeforeTool":
		return s.report(func(open []event) []event {
			return []event{{EventType: agentlog.ToolCallStarted,
				ToolCallID: call + "-" + strings.ToLower(rand.Text()[:8]), Tool: e.Tool}}
		})
	case "AfterTool":
		return s.report(func(open []event) []event {
			for _, o := range open {
				if strings.HasPrefix(o.ToolCallID, call+"-") {
					return []event{{EventType: agentlog.ToolCallCompleted, ToolCallID: o.ToolCallID, Tool: e.Tool}}
				}
			}
			return nil
		})
	case "AfterAgent": // the only event after a call that was refused
		return s.report(func(open []event) (ends []event) {
			for _, o := range open {
				ends = append(ends, event{EventType: agentlog.ToolCallCompleted, ToolCallID: o.ToolCallID,
					Tool: o.Tool})
			}
			return ends
		})
	case "SessionEnd":
		return s.report(just(agentlog.RunFinished, "", ""))
	}
	return nil
}

func geminiCall(e geminiEvent) string {
	input := e.Input
	_ = input.Canonicalize() // equal arguments become equal bytes; invalid JSON stays unchanged
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(e.SessionID), []byte(e.Tool), input}, []byte{0}))
	return e.Tool + "-" + hex.EncodeToString(sum[:6])
}
