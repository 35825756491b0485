package hook_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/hook"
	"github.com/assay-run/assay-run/schema"
)

// scene is a run with a log.
type scene struct {
	t   *testing.T
	log string
	env map[string]string
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, log: filepath.Join(t.TempDir(), "sdk.ndjson")}
	s.env = map[string]string{
		"ASSAY_RUNNER_SDK_EVENT_LOG": s.log, "ASSAY_RUNNER_SDK_EVENT_SCHEMA": "assay.runner.sdk_event.v0",
		"ASSAY_RUNNER_RUN_ID": "run_1",
	}
	return s
}

func (s *scene) run(agent, in string) (string, error) {
	var out bytes.Buffer
	err := hook.Run(agent, strings.NewReader(in), &out, func(k string) string { return s.env[k] })
	return out.String(), err
}

func (s *scene) must(agent, in string) string {
	s.t.Helper()
	out, err := s.run(agent, in)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// lines are the log as "seq type id tool".
func (s *scene) lines() (all []string) {
	s.t.Helper()
	data, err := os.ReadFile(s.log)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e struct {
			Schema, Source string
			RunID          string `json:"run_id"`
			SDKName        string `json:"sdk_name"`
			SDKVersion     string `json:"sdk_version"`
			EventType      string `json:"event_type"`
			ID             string `json:"tool_call_id"`
			Tool           string
			Seq            int
		}
		if err := json.Unmarshal(line, &e); err != nil || e.Schema != "assay.runner.sdk_event.v0" ||
			e.RunID != "run_1" || e.Source != e.SDKName {
			s.t.Errorf("%v: %s", err, line)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintln(e.Seq, e.EventType, e.ID, e.Tool)))
	}
	return all
}

func TestClaudeCode(t *testing.T) {
	s := newScene(t)
	s.env["AI_AGENT"] = "claude-code_2-1-330_harness"
	event := func(name, rest string) string {
		return s.must("claude-code", fmt.Sprintf(`{"session_id":"s","hook_event_name":%q%s}`, name, rest))
	}
	if out := event("PreToolUse",
		`,"tool_name":"Bash","tool_use_id":"toolu_1","tool_input":{"command":"ls","timeout":5}`); out != "" {
		t.Errorf("without the shell the hook says %s", out)
	}
	event("PostToolUse", `,"tool_name":"Bash","tool_use_id":"toolu_1"`)
	s.env["CLAUDE_CODE_SHELL_PREFIX"] = "/x/assay_shell"
	out := event("PreToolUse", `,"tool_name":"Bash","tool_use_id":"toolu_2","tool_input":{"command":"ls","timeout":5}`)
	if want := `{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"command":"# ASSAY_TOOL_CALL_ID=toolu_2\nls","timeout":5}}}`; strings.TrimSpace(out) != want {
		t.Errorf("the hook says %s", out)
	}
	if out := event("PreToolUse",
		`,"tool_name":"Bash","tool_use_id":"a b; rm","tool_input":{"command":"ls"}`); out != "" {
		t.Errorf("an id that a shell would take apart comes into the command: %s", out)
	}
	event("PostToolBatch", `,"tool_calls":[{"tool_name":"Bash","tool_use_id":"toolu_2"},{"tool_name":"Bash","tool_use_id":"toolu_1"}]`)
	event("SessionEnd", `,"reason":"clear"`)
	event("SessionEnd", `,"reason":"other"`)
	want := []string{
		"0 tool_call_started toolu_1 Bash", "1 tool_call_completed toolu_1 Bash", "2 tool_call_started toolu_2 Bash",
		"3 tool_call_started a b; rm Bash", "4 tool_call_completed toolu_2 Bash", "5 run_finished",
	}
	if diff := cmp.Diff(want, s.lines()); diff != "" {
		t.Error(diff)
	}
	if data, _ := os.ReadFile(s.log); !bytes.Contains(data,
		[]byte(`"sdk_name":"claude-code","sdk_version":"2.1.330"`)) {
		t.Errorf("%s", data)
	}
}

func TestGeminiCLI(t *testing.T) {
	s := newScene(t)
	event := func(name, tool, input string) {
		if out := s.must("gemini-cli",
			fmt.Sprintf(`{"session_id":"s","hook_event_name":%q,"tool_name":%q,"tool_input":%s}`, name, tool,
				input)); out != "{}\n" {
			t.Errorf("the hook says %q", out)
		}
	}
	event("BeforeTool", "read_file", `{"path":"a","n":1}`)
	event("BeforeTool", "read_file", `{"path":"b"}`)
	event("BeforeTool", "read_file", `{"path":"b"}`)
	event("AfterTool", "read_file", `{"n":1,"path":"a"}`)
	event("AfterTool", "read_file", `{"path":"b"}`)
	event("AfterAgent", "", `null`)
	event("SessionEnd", "", `null`)
	ids := map[string][]string{}
	for _, l := range s.lines() {
		f := strings.Fields(l)
		if len(f) == 4 {
			ids[f[2]] = append(ids[f[2]], f[1])
		}
	}
	if len(ids) != 3 || len(s.lines()) != 7 {
		t.Errorf("%d calls in %q", len(ids), s.lines())
	}
	for id, events := range ids {
		if diff := cmp.Diff([]string{"tool_call_started", "tool_call_completed"}, events); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

const codexEvents = `Reading prompt from stdin...
{"type":"thread.started","thread_id":"0199"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"x"}}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"bash -lc ls","status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"bash -lc ls","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"item_2","type":"file_change","changes":[],"status":"completed"}}
{"type":"item.started","item":{"id":"item_3","type":"mcp_tool_call","server":"files","tool":"read","status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_3","type":"mcp_tool_call","server":"files","tool":"read","status":"failed"}}
{"type":"turn.completed","usage":{}}
no newline at the end`

func TestCodex(t *testing.T) {
	s := newScene(t)
	if out := s.must("codex", codexEvents); out != codexEvents {
		t.Error(cmp.Diff(codexEvents, out))
	}
	want := []string{
		"0 tool_call_started item_1 command_execution", "1 tool_call_completed item_1 command_execution",
		"2 tool_call_started item_2 file_change", "3 tool_call_completed item_2 file_change",
		"4 tool_call_started item_3 read", "5 tool_call_completed item_3 read", "6 run_finished",
	}
	if diff := cmp.Diff(want, s.lines()); diff != "" {
		t.Error(diff)
	}
	if got, want := s.argv(), [][]string{{"bash", "-lc", "ls"}}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	// The events are passed on even if they cannot be reported.
	s.env["ASSAY_RUNNER_SDK_EVENT_LOG"] = t.TempDir()
	if out, err := s.run("codex", codexEvents); out != codexEvents || err == nil {
		t.Errorf("%v: %s", err, out)
	}
}

// argv lists the commands of the log's starts.
func (s *scene) argv() (all [][]string) {
	s.t.Helper()
	data, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e schema.SDKEvent
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Argv != nil {
			all = append(all, e.Argv)
		}
	}
	return all
}

func TestCodexQuotesCommands(t *testing.T) {
	for line, want := range map[string][]string{
		`/bin/bash -lc 'sleep 1; touch "a b"'`: {"/bin/bash", "-lc", `sleep 1; touch "a b"`},
		`bash -lc "it's \$5 \n"`:               {"bash", "-lc", `it's $5 \n`},
		`bash -lc 'a'"'"'b'\ c ''`:             {"bash", "-lc", "a'b c", ""},
		"bash -lc 'one\ntwo'":                  {"bash", "-lc", "one\ntwo"},
		`bash -lc 'open`:                       nil,
		`bash -lc \`:                           nil,
		"bash -lc \x00":                        nil,
		strings.Repeat("x", 16<<10+1):          nil,
	} {
		s := newScene(t)
		item, err := json.Marshal(map[string]any{"type": "item.started",
			"item": map[string]any{"id": "i", "type": "command_execution", "command": line}})
		if err != nil {
			t.Fatal(err)
		}
		s.must("codex", string(item)+"\n")
		var got []string
		if all := s.argv(); all != nil {
			got = all[0]
		}
		if diff := cmp.Diff(want, got); diff != "" || len(s.lines()) != 1 {
			t.Errorf("%.40s: %s", line, diff)
		}
	}
}

func TestOutsideOfARunNothingIsReported(t *testing.T) {
	for agent, in := range map[string]string{"claude-code": `{"hook_event_name":"PreToolUse"}`, "gemini-cli": `{}`,
		"codex": codexEvents} {
		s := newScene(t)
		delete(s.env, "ASSAY_RUNNER_SDK_EVENT_LOG")
		s.must(agent, in)
		if got := s.lines(); got != nil {
			t.Errorf("%s: %q", agent, got)
		}
	}
}

func TestAHostileLogIsNotFollowed(t *testing.T) {
	s := newScene(t)
	event := `{"hook_event_name":"PreToolUse","tool_name":"T","tool_use_id":"1"}`
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(elsewhere, s.log); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run("claude-code", event); err == nil {
		t.Error("a link is followed")
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a file was made through a link")
	}
	for _, in := range []string{"", "x", `{"hook_event_name":1}`} {
		if _, err := newScene(t).run("claude-code", in); err == nil {
			t.Errorf("%q is an event", in)
		}
	}
	if _, err := s.run("nobody", ""); err == nil ||
		!strings.Contains(err.Error(), "known: claude-code, codex, gemini-cli") {
		t.Error(err)
	}
}

func TestManyHooksAtATimeCountOn(t *testing.T) {
	s := newScene(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := s.run("claude-code",
				fmt.Sprintf(`{"hook_event_name":"PreToolUse","tool_name":"T","tool_use_id":"%d"}`, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	file, err := os.Open(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); n++ {
		var e struct{ Seq int }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Seq != n {
			t.Fatalf("line %d: %s", n, lines.Text())
		}
	}
	if n != 40 {
		t.Errorf("%d lines", n)
	}
}

// A line that was cut by a full disk or a kill stays a line of its own, and the next one is complete.
func TestALineAfterATornOne(t *testing.T) {
	s := newScene(t)
	hook := func(event, id string) {
		s.must("claude-code", fmt.Sprintf(`{"hook_event_name":%q,"tool_name":"T","tool_use_id":%q}`, event, id))
	}
	hook("PreToolUse", "1")
	const torn = `{"schema":"assay.runner.sdk_event.v0","seq":1,"event_ty`
	file, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(torn)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	hook("PostToolUse", "1")
	hook("PreToolUse", "2")
	data, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("\n"+torn+"\n")) {
		t.Errorf("the torn line is not one of its own:\n%s", data)
	}
	if err := os.WriteFile(s.log, bytes.Replace(data, []byte(torn+"\n"), nil, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"0 tool_call_started 1 T", "1 tool_call_completed 1 T", "2 tool_call_started 2 T"}
	if diff := cmp.Diff(want, s.lines()); diff != "" {
		t.Error(diff)
	}
}
