package hook_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/hook"
)

// rolloutLines is what Codex 0.169.0 wrote about a session, without lines that report no call.
func rolloutLines(at time.Time) string {
	var b strings.Builder
	for i, payload := range []string{
		`"session_meta","payload":{"id":"s","cli_version":"0.169.0"}`,
		`"response_item","payload":{"type":"message","id":"msg_1","role":"user","content":[]}`,
		`"response_item","payload":{"type":"function_call","id":"fc_1","name":"exec_command","arguments":"{}","call_id":"call_1"}`,
		`"event_msg","payload":{"type":"item_completed","item":{"type":"CommandExecution","id":"call_1","status":"completed"}}`,
		`"response_item","payload":{"type":"function_call_output","id":"fco_1","call_id":"call_1","output":"Process exited with code 0"}`,
		`"response_item","payload":{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"apply_patch","input":""}`,
		`"response_item","payload":{"type":"web_search_call","id":"ws_1","status":"completed"}`,
		`"response_item","payload":{"type":"custom_tool_call_output","id":"ctco_1","call_id":"call_2","output":"done"}`,
		`"response_item","payload":{"type":"function_call","id":"fc_3","name":"exec_command","arguments":"{}","call_id":"call_3"}`,
		`"event_msg","payload":{"type":"turn_aborted"}`,
	} {
		fmt.Fprintf(&b, `{"timestamp":%q,"ordinal":%d,"type":%s}`+"\n", at.UTC().Format("2006-01-02T15:04:05.000Z"), i,
			payload)
	}
	return b.String()
}

func TestCodexRollouts(t *testing.T) {
	s := newScene(t)
	home := t.TempDir()
	s.env["CODEX_HOME"] = home
	file := func(day time.Time, name string) string {
		dir := filepath.Join(home, "sessions", day.Format("2006/01/02"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	add := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	earlier, now := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	resumed := file(earlier.AddDate(0, -1, 0), "rollout-1.jsonl")
	add(resumed, rolloutLines(now)) // all of it was there before
	stop := hook.Follow(func(k string) string { return s.env[k] })
	add(resumed, `{"timestamp":"`+now.UTC().Format(time.RFC3339)+
		`","type":"response_item","payload":{"type":"local_shell_call","call_id":"resumed"}}`+"\n")
	lines := rolloutLines(now)
	add(file(time.Now(), "rollout-2.jsonl"), rolloutLines(earlier)+lines[:700]) // it continues another session
	add(file(time.Now(), "rollout-2.jsonl"), lines[700:])
	add(file(time.Now(), "other.jsonl"), lines)
	if err := os.Symlink(resumed, file(time.Now(), "rollout-3.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var of2, rest []string
	for _, l := range s.lines() {
		_, l, _ = strings.Cut(l, " ")
		if strings.Contains(l, "resumed") || strings.HasPrefix(l, "run_") {
			rest = append(rest, l)
		} else {
			of2 = append(of2, l)
		}
	}
	if diff := cmp.Diff([]string{
		"tool_call_started call_1 exec_command", "tool_call_completed call_1 exec_command",
		"tool_call_started call_2 apply_patch",
		"tool_call_started ws_1 web_search", "tool_call_completed ws_1 web_search",
		"tool_call_completed call_2 apply_patch",
		"tool_call_started call_3 exec_command", "tool_call_completed call_3 exec_command",
	}, of2); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"tool_call_started resumed local_shell", "tool_call_completed resumed local_shell",
		"run_finished"}, rest); diff != "" {
		t.Error(diff)
	}
	if data, _ := os.ReadFile(s.log); !bytes.Contains(data, []byte(`"sdk_version":"0.169.0"`)) {
		t.Errorf("%s", data)
	}
}
