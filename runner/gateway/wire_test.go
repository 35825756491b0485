package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// TestASessionOfAnotherClient replays what another program's client sends over a WebSocket, and compares the answers
// with what that client expects.
func TestASessionOfAnotherClient(t *testing.T) {
	for _, answer := range []string{"a string", "a number"} {
		t.Run("which answers with the id as "+answer, func(t *testing.T) { replay(t, answer == "a number") })
	}
}

func replay(t *testing.T, numbers bool) {
	f := start(t, nil)
	conn := dialOver(t, f.Gateway)
	script, err := os.Open("testdata/wire/run-tracing.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	var id string
	steps := bufio.NewScanner(script)
	for steps.Scan() {
		var step map[string]json.RawMessage
		if err := json.Unmarshal(steps.Bytes(), &step); err != nil {
			t.Fatal(err)
		}
		if send := step[">"]; send != nil {
			own := `"` + id + `"`
			if numbers {
				own = id
			}
			text := strings.NewReplacer(`"$STRING"`, own, "$RUN", "run_1").Replace(string(send))
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		_, got, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want, have map[string]any
		if json.Unmarshal(step["<"], &want) != nil || json.Unmarshal(got, &have) != nil {
			t.Fatalf("%s, %s", step["<"], got)
		}
		if have["error"] != nil {
			t.Fatalf("got %s, want %s", got, step["<"])
		}
		if want["id"] == "$STRING" {
			id = have["id"].(string)
			delete(have["params"].(map[string]any), "tool_call_id") // ours beside
			want["id"] = id
		}
		if want["result"] == nil {
			delete(have, "result")
		} else {
			want["result"] = map[string]any{"run_id": "run_1"}
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	conn.Close(websocket.StatusNormalClosure, "")
	f.end(t)
	turns := f.rec.Lines(t, schema.TurnsPath)
	if len(turns) != 3 {
		t.Fatalf("%d turns: %s", len(turns), turns)
	}
	for i, part := range []string{`"client_id":"test","proposal_id":"p-drive"`,
		`"policy_rejected":{"rule":"no-destructive","param":"prompt"}`, `"source":"reported"`} {
		if !strings.Contains(turns[i], part) || !strings.Contains(turns[i], `"record":"turn"`) {
			t.Errorf("turn %d lacks %s: %s", i, part, turns[i])
		}
	}
}

// theirs is an audit line as another reader of version 2 declares it.
type theirs struct {
	TS                  string   `json:"ts"`
	CallID              string   `json:"call_id"`
	ToolID              string   `json:"tool_id"`
	CallerID            *string  `json:"caller_id"`
	GrantedCapabilities []string `json:"granted_capabilities"`
	DurationMS          uint64   `json:"duration_ms"`
	Outcome             struct {
		Kind         string   `json:"kind"`
		Code         string   `json:"code"`
		Retryable    bool     `json:"retryable"`
		Message      string   `json:"message"`
		Missing      []string `json:"missing"`
		RetryAfterMS *uint64  `json:"retry_after_ms"`
	} `json:"outcome"`
	Tier            string `json:"tier"`
	DryRun          bool   `json:"dry_run"`
	SchemaVersion   int    `json:"schema_version"`
	SecretsResolved bool   `json:"secrets_resolved"`
	CursorPage      *int   `json:"cursor_page"`
}

// TestAuditLinesAsOthersReadThem: a reader that knows only the kinds of version 2
// reads every line, a tool's own error code is kept, a result that says that it
// is an error is a failed call, and pages are counted.
func TestAuditLinesAsOthersReadThem(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	results := map[string]string{
		"page":   `{"content":[],"nextCursor":"c2"}`,
		"broken": `{"isError":true,"content":[{"type":"text","text":"no such file"}],"structuredContent":{"code":"FS_NOT_FOUND","retryable":true}}`,
		"mcp":    `{"isError":true,"content":[]}`,
	}
	c.tool = func(p toolsExecute) (string, string) {
		if p.Tool == "fails" {
			return "", `{"code":-32000,"message":"gone","data":{"code":"FS_NOT_FOUND","retryable":false}}`
		}
		return results[p.Tool], ""
	}
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register",
		`[{"name":"page"},{"name":"broken"},{"name":"mcp"},{"name":"fails"},{"name":"denied"},{"name":"slow","max_concurrent":1,"rate_limit_per_min":1},{"name":"net","capabilities":["network"]}]`)
	c.must("policy.register", `{"name":"r","rule":"deny_tool","target":"denied"}`)
	for _, call := range []struct{ tool, params string }{
		{"page", `{}`}, {"page", `{"cursor":"c2"}`}, {"page", `{"cursor":"unknown"}`}, {"broken", `{}`}, {"mcp", `{}`},
		{"fails", `{}`}, {"denied", `{}`}, {"none", `{}`},
	} {
		c.submit(call.tool, call.params)
	}
	f.end(t)
	var got []string
	for _, line := range f.rec.Lines(t, schema.AuditPath) {
		var e theirs
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		said := e.ToolID + " " + e.Outcome.Kind + " " + e.Outcome.Code
		if e.Outcome.Retryable {
			said += " retryable"
		}
		if e.CursorPage != nil {
			said += " page " + string(rune('0'+*e.CursorPage))
		}
		got = append(got, strings.TrimSpace(said))
	}
	want := []string{
		"page success  page 1", "page success  page 2", "page success",
		"broken execution_failed FS_NOT_FOUND retryable", "mcp execution_failed tool_error",
		"fails execution_failed FS_NOT_FOUND", "denied execution_failed policy_denied", "none tool_not_found",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	turns := f.rec.Lines(t, schema.TurnsPath)
	if !strings.Contains(turns[3], "no such file") || !strings.Contains(turns[3], `"error":"FS_NOT_FOUND"`) {
		t.Errorf("what the tool said is not in its turn: %s", turns[3])
	}
	if m := f.Metrics(); m.Errors[schema.FailToolError] != 3 || m.Errors["FS_NOT_FOUND"] != 0 {
		t.Errorf("metrics %+v", m.Errors)
	}
	if data, _ := json.Marshal(f.Metrics()); bytes.Contains(data, []byte("FS_")) {
		t.Error("a tool's own codes are counted one by one")
	}
}
