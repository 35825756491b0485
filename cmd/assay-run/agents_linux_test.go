package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// agentCommand is what every model of TestAgents has its agent run, once.
const agentCommand = "sleep 1; touch by-agent; sleep 1" // a call that is bound by time is told of late

// agentPrograms are the agents of TestAgents: how each is set up and run as docs/agents
// says, the way its model speaks, and by what a shell command is bound.
var agentPrograms = map[string]struct {
	shim, bound string
	setUp       func(t *testing.T, dir, home, model string) []string
	// besides has the program run "touch besides" as well, in no call.
	besides func(t *testing.T, dir, home string, command []string) []string
	model   func(request map[string]any) []any // server-sent events
}{
	"codex": {"codex", "window", func(t *testing.T, dir, home, model string) []string {
		return append([]string{"bash", "-o", "pipefail", "-c", `"$@" < /dev/null | assay-run hook codex`, "bash"},
			codex(t, home, model, "--json")...)
	}, codexBesides, codexModel},
	"codex's rollouts": {"codex", "window", func(t *testing.T, dir, home, model string) []string {
		return append([]string{"assay-run", "hook", "codex", "--"}, codex(t, home, model)...)
	}, codexBesides, codexModel},
	"gemini": {"gemini-cli", "window", func(t *testing.T, dir, home, model string) []string {
		t.Setenv("HOME", home)
		t.Setenv("GEMINI_API_KEY", "none")
		t.Setenv("GOOGLE_GEMINI_BASE_URL", model)
		settings := map[string]any{}
		data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "shims", "gemini-cli", "settings.json"))
		if err == nil {
			err = json.Unmarshal(data, &settings)
		}
		if err != nil {
			t.Fatal(err)
		}
		settings["security"] = map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"},
			"folderTrust": map[string]any{"enabled": false}}
		settings["privacy"], settings["general"] = map[string]any{"usageStatisticsEnabled": false},
			map[string]any{"enableAutoUpdate": false}
		write(t, filepath.Join(home, ".gemini", "settings.json"), settings)
		return []string{program("gemini"), "-y", "-m", "gemini-2.5-flash", "-p", "Follow the script."}
	}, func(t *testing.T, dir, home string, command []string) []string {
		settings := readJSON(t, filepath.Join(home, ".gemini", "settings.json"))
		besides := map[string]any{"type": "command", "name": "besides", "command": "touch besides"}
		settings["hooks"].(map[string]any)["SessionStart"] = []any{map[string]any{"hooks": []any{besides}}}
		write(t, filepath.Join(home, ".gemini", "settings.json"), settings)
		return command
	}, func(request map[string]any) []any {
		part := map[string]any{"functionCall": map[string]any{"name": "run_shell_command",
			"args": map[string]any{"command": agentCommand}}}
		if strings.Contains(fmt.Sprint(request["contents"]), "functionResponse") {
			part = map[string]any{"text": "done"}
		}
		return []any{map[string]any{"candidates": []any{map[string]any{"content": map[string]any{"role": "model",
			"parts": []any{part}}, "finishReason": "STOP", "index": 0}}}}
	}},
	"opencode": {"opencode", "env", func(t *testing.T, dir, home, model string) []string {
		t.Setenv("HOME", home)
		for _, off := range []string{"AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS"} {
			t.Setenv("OPENCODE_DISABLE_"+off, "1")
		}
		write(t, filepath.Join(dir, "opencode.json"), map[string]any{
			"$schema": "https://opencode.ai/config.json", "autoupdate": false, "share": "disabled",
			"permission": "allow",
			"provider": map[string]any{"fake": map[string]any{
				"npm": "@ai-sdk/openai-compatible", "name": "fake",
				"options": map[string]any{"baseURL": model + "/v1", "apiKey": "none"},
				"models":  map[string]any{"m": map[string]any{"name": "m"}},
			}},
		})
		shims, plugin := filepath.Join("..", "..", "testdata", "shims"), filepath.Join(dir, ".opencode", "plugin")
		copyFile(t, filepath.Join(shims, "opencode", "assay.js"), filepath.Join(plugin, "assay.js"))
		copyFile(t, filepath.Join(shims, "node", "assay-shim.mjs"), filepath.Join(plugin, "assay", "assay-shim.mjs"))
		return []string{program("opencode"), "run", "-m", "fake/m", "Follow the script."}
	}, func(t *testing.T, dir, home string, command []string) []string {
		plugin := "import { execFileSync } from 'node:child_process'\nexport const Besides = async () => { " +
			"execFileSync('touch', ['besides']); return {} }\n"
		if err := os.WriteFile(filepath.Join(dir, ".opencode", "plugin", "besides.js"), []byte(plugin),
			0o644); err != nil {
			t.Fatal(err)
		}
		return command
	}, func(request map[string]any) []any {
		delta, why := map[string]any{"role": "assistant", "content": "done"}, "stop"
		messages := fmt.Sprint(request["messages"])
		if request["tools"] != nil && !strings.Contains(messages, "role:tool") {
			function := map[string]any{"name": "bash",
				"arguments": fmt.Sprintf(`{"command":%q,"description":"d"}`, agentCommand)}
			delta, why = map[string]any{"role": "assistant",
				"tool_calls": []any{map[string]any{"index": 0, "id": "call_1", "type": "function",
					"function": function}}}, "tool_calls"
		}
		chunk := func(delta map[string]any, why any) any {
			return map[string]any{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
				"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": why}}}
		}
		return []any{chunk(delta, nil), chunk(map[string]any{}, why), nil}
	}},
}

// codexBesides has Codex run a command at the end of a turn.
func codexBesides(_ *testing.T, _, _ string, command []string) []string {
	at := slices.Index(command, "-c")
	for command[at+1] != "model_provider=fake" {
		at += 1 + slices.Index(command[at+1:], "-c")
	}
	return slices.Insert(slices.Clone(command), at, "-c", `notify=["touch","besides"]`)
}

func readJSON(t *testing.T, path string) (v map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// declared asserts what the rule about calls says of a run of a real agent.
func declared(t *testing.T, bundle, agent string, honest bool, paths ...string) {
	t.Helper()
	list, _ := json.Marshal(paths)
	rules, err := judge.ParseRules(t.Context(),
		fmt.Appendf(nil, "rules:\n- no_undeclared_actions: {agent: %s, hosts: [127.0.0.1], paths: %s}\n", agent, list),
		"")
	if err != nil {
		t.Fatal(err)
	}
	defer rules.Close()
	set, err := view.Open(t.Context(), []string{bundle}, view.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	report, err := judge.Judge(t.Context(), rules, set.Bundles)
	if err != nil {
		t.Fatal(err)
	}
	v := report.Judgements[0].Verdicts[0]
	ran := slices.ContainsFunc(v.Evidence, func(e judge.Evidence) bool {
		return strings.HasPrefix(e.Text, "ran touch besides ")
	})
	if honest && v.State != judge.Pass || !honest && (v.State != judge.Fail || !ran) {
		t.Errorf("honest %v: %+v", honest, v)
	}
}

// codex is a command line of Codex, with its home below home.
func codex(t *testing.T, home, model string, options ...string) []string {
	t.Setenv("HOME", home)
	t.Setenv("OPENAI_API_KEY", "none")
	provider := fmt.Sprintf(`model_providers.fake={name="fake",base_url="%s/v1",wire_api="responses",env_key="OPENAI_API_KEY",supports_websockets=false}`, model)
	options = append([]string{program("codex"), "exec", "--skip-git-repo-check",
		"--dangerously-bypass-approvals-and-sandbox"}, options...)
	return append(options, "-c", "model_provider=fake", "-c", provider, "-m", "gpt-5", "Follow the script.")
}

func codexModel(request map[string]any) []any {
	item := map[string]any{"type": "function_call", "name": "exec_command", "call_id": "call_1",
		"arguments": fmt.Sprintf(`{"cmd":%q}`, agentCommand)}
	if strings.Contains(fmt.Sprint(request["input"]), "function_call_output") {
		item = map[string]any{"type": "message", "role": "assistant", "id": "m",
			"content": []any{map[string]any{"type": "output_text", "text": "done"}}}
	}
	return []any{
		map[string]any{"type": "response.created", "response": map[string]any{"id": "r"}},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{"type": "response.completed",
			"response": map[string]any{"id": "r", "output": []any{},
				"usage": map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}},
	}
}

// program is the path of an agent of TestAgents.
func program(name string) string { return filepath.Join(os.Getenv("ASSAY_TEST_AGENTS"), name) }

// serveModel answers the requests to a model with server-sent events. It returns its URL.
func serveModel(t *testing.T, answer func(request map[string]any) []any) string {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if body, _ := io.ReadAll(r.Body); r.Method != http.MethodPost || json.Unmarshal(body, &request) != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range answer(request) {
			data, _ := json.Marshal(event)
			if event == nil {
				data = []byte("[DONE]")
			}
			if of, ok := event.(map[string]any); ok && of["type"] != nil {
				fmt.Fprintf(w, "event: %s\n", of["type"])
			}
			fmt.Fprintf(w, "data: %s\n\n", data)
		}
	}))
	t.Cleanup(model.Close)
	return model.URL
}

// TestAgents runs real agent programs against scripted models, twice. They take some hundred
// megabytes, so that who wants this test names their directory; "make test-agents"
// gets them from npm.
func TestAgents(t *testing.T) {
	if os.Getenv("ASSAY_TEST_AGENTS") == "" {
		t.Skip("ASSAY_TEST_AGENTS does not name the directory of the agents' programs")
	}
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for name, agent := range agentPrograms {
		t.Run(name, func(t *testing.T) {
			programInPath(t)
			model := serveModel(t, agent.model)
			// Below /tmp, more names count as random.
			root, err := os.MkdirTemp("/var/lib", "assay-run-agents-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(root) })
			dir, home, temp := filepath.Join(root, "work"), filepath.Join(root, "home"), t.TempDir()
			t.Setenv("TMPDIR", temp) // OpenCode leaves its libraries there
			once := func(besides bool) *archive.Reader {
				for _, d := range []string{dir, home, temp} {
					if err := errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)); err != nil {
						t.Fatal(err)
					}
				}
				command := agent.setUp(t, dir, home, model)
				if besides {
					command = agent.besides(t, dir, home, command)
				}
				args := append([]string{"-q", "--kernel", "require", "--timeout", "3m", "-o", "b.tar.gz",
					"--agent-shim", agent.shim, "--sdk-event-log", "sdk.ndjson", "--"}, command...)
				run := exec.Command("assay-run", args...)
				run.Dir = dir
				if out, err := run.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				r, err := archive.Open(filepath.Join(dir, "b.tar.gz"))
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := documents(t, once(false)).Surface
			late := func(path string) bool { // OpenCode makes it at some time, or has ended before
				return path == filepath.Join(home, ".local/share/opencode/tool-output")
			}
			first.FilesystemPaths = slices.DeleteFunc(first.FilesystemPaths, late)
			r := once(false)
			own := []string{filepath.Join(temp, "opencode")} // its place in the directory for temporary files
			declared(t, filepath.Join(dir, "b.tar.gz"), agent.shim, true, own...)
			unaccused(t, filepath.Join(dir, "b.tar.gz"), agent.shim)
			docs := documents(t, r)
			docs.Surface.RunID, docs.Surface.FilesystemPaths = first.RunID,
				slices.DeleteFunc(docs.Surface.FilesystemPaths, late)
			if diff := cmp.Diff(first, docs.Surface); diff != "" {
				t.Errorf("the surfaces of two equal runs differ (-first +second):\n%s", diff)
			}
			if len(docs.Correlation.Bindings) != 1 || docs.Correlation.Bindings[0].TEndNS == nil {
				t.Fatalf("calls: %+v", docs.Correlation.Bindings)
			}
			call := docs.Correlation.Bindings[0]
			if got := changed(t, r, dir)["by-agent"]; got != call.ToolCallID+" by "+agent.bound {
				t.Errorf("by-agent is changed in %q; want %s by %s", got, call.ToolCallID, agent.bound)
			}
			for _, reason := range docs.Health.Reasons {
				if reason.Subject == "sdk" {
					t.Errorf("%s: %s", reason.Code, reason.Message)
				}
			}
			kernelEvents(t, r, func(e *schema.KernelEvent) {
				if e.Kind == schema.KindExec && len(e.Argv) == 3 && e.Argv[1] == "hook" &&
					(e.Class != schema.ClassRunner || e.ToolCallID != "") {
					t.Errorf("%q is class %s, of call %q", e.Argv, e.Class, e.ToolCallID)
				}
			})
			once(true)
			if _, err := os.Stat(filepath.Join(dir, "besides")); err != nil {
				t.Fatal(err)
			}
			declared(t, filepath.Join(dir, "b.tar.gz"), agent.shim, false, own...)
		})
	}
}

// TestAgentsTellOfShortCommandsLate has the events of Codex report two equal commands that have
// ended when it tells of them.
func TestAgentsTellOfShortCommandsLate(t *testing.T) {
	if os.Getenv("ASSAY_TEST_AGENTS") == "" {
		t.Skip("ASSAY_TEST_AGENTS does not name the directory of the agents' programs")
	}
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	programInPath(t)
	model := serveModel(t, func(request map[string]any) []any {
		answer := codexModel(request)
		if done := strings.Count(fmt.Sprint(request["input"]), "function_call_output"); done < 2 {
			item := map[string]any{"type": "function_call", "name": "exec_command",
				"call_id": fmt.Sprintf("call_%d", done), "arguments": `{"cmd":"echo \"it's\" >> by-agent"}`}
			answer[1] = map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item}
		}
		return answer
	})
	root, err := os.MkdirTemp("/var/lib", "assay-run-agents-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	dir, home := filepath.Join(root, "work"), filepath.Join(root, "home")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	agent := agentPrograms["codex"]
	run := exec.Command("assay-run", append([]string{"-q", "--kernel", "require", "--timeout", "3m", "-o", "b.tar.gz",
		"--agent-shim", agent.shim, "--sdk-event-log", "sdk.ndjson", "--"}, agent.setUp(t, dir, home, model)...)...)
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bundle := filepath.Join(dir, "b.tar.gz")
	declared(t, bundle, agent.shim, true)
	r, err := archive.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	report := documents(t, r).Correlation
	if len(report.Bindings) != 2 {
		t.Errorf("calls: %+v", report.Bindings)
	}
	file := filepath.Join(dir, "by-agent")
	for _, b := range report.Bindings {
		if !slices.Contains(b.Effects.Written, file) {
			t.Errorf("call %s: %+v", b.ToolCallID, b.Effects)
		}
	}
	for _, u := range report.ObservedNotReported {
		if slices.Contains(u.Effects.Written, file) {
			t.Errorf("%s is %s", file, u.Code)
		}
	}
}

func documents(t *testing.T, r *archive.Reader) *archive.Documents {
	t.Helper()
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
