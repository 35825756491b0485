package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// askingAgents are the agents of TestAgentsReplay: the provider that each asks, and how it is run,
// as docs/model.md says.
var askingAgents = map[string]struct {
	program, route, key string
	setUp               func(t *testing.T, dir, home string) []string
}{
	"claude-code": {"claude", "anthropic", "ANTHROPIC_API_KEY", func(t *testing.T, dir, home string) []string {
		return []string{program("claude"), "-p", "Follow the script.", "--model", "claude-sonnet-4-5",
			"--allowedTools", "Bash(touch:*)"}
	}},
	"codex": {"codex", "openai", "OPENAI_API_KEY", func(t *testing.T, dir, home string) []string {
		return []string{"sh", "-c",
			`exec "$@" -c openai_base_url="\"$OPENAI_BASE_URL\"" "Follow the script." </dev/null`, "sh",
			program("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m",
			"gpt-5",
			"-c", "web_search=disabled"}
	}},
	"gemini-cli": {"gemini", "gemini", "GEMINI_API_KEY", func(t *testing.T, dir, home string) []string {
		write(t, filepath.Join(home, ".gemini", "settings.json"), map[string]any{
			"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"},
				"folderTrust": map[string]any{"enabled": false}},
			"privacy": map[string]any{"usageStatisticsEnabled": false},
			"general": map[string]any{"enableAutoUpdate": false},
		})
		return []string{program("gemini"), "-y", "-m", "gemini-2.5-flash", "-p", "Follow the script."}
	}},
	"opencode": {"opencode", "openai", "OPENAI_API_KEY", func(t *testing.T, dir, home string) []string {
		write(t, filepath.Join(dir, "opencode.json"), map[string]any{
			"$schema": "https://opencode.ai/config.json", "autoupdate": false, "share": "disabled",
			"permission": "allow",
			"provider": map[string]any{"scripted": map[string]any{
				"npm": "@ai-sdk/openai-compatible", "name": "scripted",
				"options": map[string]any{"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
				"models":  map[string]any{"m": map[string]any{"name": "m"}},
			}},
		})
		return []string{program("opencode"), "run", "-m", "scripted/m", "Follow the script."}
	}},
}

// toucher is a provider whose model has the agent touch a file. If it is busy, it first answers that it is.
func toucher(t *testing.T, busy bool) *scriptedProvider {
	t.Helper()
	var mu sync.Mutex
	p := &scriptedProvider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || json.Unmarshal(body, &request) != nil {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		p.bodies = append(p.bodies, string(body))
		first := busy && request["tools"] != nil
		busy = busy && !first
		mu.Unlock()
		if first {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","code":429,"message":"busy",`+
				`"status":"RESOURCE_EXHAUSTED"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range scripted(r.URL.Path, request) {
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
	t.Cleanup(p.Close)
	return p
}

// scriptedProvider keeps what it was asked.
type scriptedProvider struct {
	*httptest.Server
	bodies []string
}

// scripted is an answer in the form of the API that a path belongs to: a call of the agent's shell, and no call once
// that has its result.
func scripted(path string, request map[string]any) []any {
	type o = map[string]any
	const command = "touch by-agent"
	asked := fmt.Sprint(request["messages"], request["input"], request["contents"])
	calls := request["tools"] != nil && !strings.Contains(asked, "tool_result") &&
		!strings.Contains(asked, "role:tool") &&
		!strings.Contains(asked, "function_call_output") && !strings.Contains(asked, "functionResponse")
	switch {
	case strings.HasSuffix(path, "/messages"):
		block, deltas, why := o{"type": "text", "text": ""}, o{"type": "text_delta", "text": "done"}, "end_turn"
		if calls {
			arguments, _ := json.Marshal(o{"command": command, "description": "d"})
			block, why = o{"type": "tool_use", "id": "toolu_1", "name": shellOf(request), "input": o{}}, "tool_use"
			deltas = o{"type": "input_json_delta", "partial_json": string(arguments)}
		}
		return []any{
			o{"type": "message_start", "message": o{"id": "msg_1", "type": "message", "role": "assistant",
				"model": request["model"], "content": []any{}, "usage": o{"input_tokens": 10, "output_tokens": 1}}},
			o{"type": "content_block_start", "index": 0, "content_block": block},
			o{"type": "content_block_delta", "index": 0, "delta": deltas},
			o{"type": "content_block_stop", "index": 0},
			o{"type": "message_delta", "delta": o{"stop_reason": why}, "usage": o{"output_tokens": 5}},
			o{"type": "message_stop"},
		}
	case strings.HasSuffix(path, "/responses"):
		item := o{"type": "message", "role": "assistant", "id": "m",
			"content": []any{o{"type": "output_text", "text": "done"}}}
		if calls {
			word := "command"
			if shellOf(request) == "exec_command" {
				word = "cmd"
			}
			item = o{"type": "function_call", "name": shellOf(request), "call_id": "call_1",
				"arguments": fmt.Sprintf(`{%q:%q}`, word, command)}
		}
		return []any{
			o{"type": "response.created", "response": o{"id": "r"}},
			o{"type": "response.output_item.done", "output_index": 0, "item": item},
			o{"type": "response.completed", "response": o{"id": "r", "output": []any{},
				"usage": o{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}},
		}
	case strings.HasSuffix(path, "/chat/completions"):
		delta, why := o{"role": "assistant", "content": "done"}, "stop"
		if calls {
			function := o{"name": shellOf(request),
				"arguments": fmt.Sprintf(`{"command":%q,"description":"d"}`, command)}
			delta, why = o{"role": "assistant", "tool_calls": []any{o{"index": 0, "id": "call_1", "type": "function",
				"function": function}}}, "tool_calls"
		}
		chunk := func(delta o, why any) o {
			return o{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
				"choices": []any{o{"index": 0, "delta": delta, "finish_reason": why}}}
		}
		last := chunk(o{}, why)
		last["usage"] = o{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
		return []any{chunk(delta, nil), last, nil}
	}
	part := o{"text": "done"}
	if calls {
		part = o{"functionCall": o{"name": "run_shell_command", "args": o{"command": command}}}
	}
	return []any{o{"candidates": []any{o{"content": o{"role": "model", "parts": []any{part}}, "finishReason": "STOP",
		"index": 0}}, "usageMetadata": o{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}}}
}

// shellOf is the name of the agent's shell among the tools of a request.
func shellOf(request map[string]any) string {
	tools, _ := request["tools"].([]any)
	for _, t := range tools {
		tool, _ := t.(map[string]any)
		if f, ok := tool["function"].(map[string]any); ok {
			tool = f
		}
		name, _ := tool["name"].(string)
		if slices.Contains([]string{"Bash", "bash", "run_shell_command", "exec_command"}, name) {
			return name
		}
	}
	return "run_shell_command" // Gemini's tools are one level deeper
}

// told is what of a line of the model layer a replay gives again.
type told struct {
	Route, Path, Model, Refused, ErrorType string
	Status                                 int
	Stream                                 bool
	Usage                                  schema.ModelUsage
	Calls, Response                        string
}

func toldOf(t *testing.T, lines []schema.ModelEvent) (all []told) {
	t.Helper()
	str := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, e := range lines {
		calls, err := json.Marshal(e.ToolCalls)
		if err != nil {
			t.Fatal(err)
		}
		l := told{Route: str(e.Route), Path: e.Path, Model: str(e.RequestModel), Refused: str(e.Refused),
			ErrorType: str(e.ErrorType), Stream: e.Stream != nil && *e.Stream, Usage: e.Usage, Calls: string(calls),
			Response: str(e.Response.SHA256)}
		if e.Status != nil {
			l.Status = *e.Status
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b told) int { // they may end in another order
		return strings.Compare(a.Path+a.Response, b.Path+b.Response)
	})
	return all
}

// offline has a command run in a network namespace that has nothing but a loopback interface.
func offline(command []string) []string {
	return append([]string{"unshare", "-n", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}, command...)
}

// TestAgentsReplay records a run of each agent with a scripted model, and replays it without a key
// and without a network.
// Then a budget of one request stops the agent.
func TestAgentsReplay(t *testing.T) {
	if os.Getenv("ASSAY_TEST_AGENTS") == "" {
		t.Skip("ASSAY_TEST_AGENTS does not name the directory of the agents' programs")
	}
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for name, agent := range askingAgents {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(program(agent.program)); err != nil {
				t.Skipf("%s is not installed in ASSAY_TEST_AGENTS", agent.program)
			}
			need(t, "unshare")
			need(t, "ip")
			programInPath(t)
			provider := toucher(t, true)
			root, bundles := t.TempDir(), t.TempDir()
			run := func(key, bundle string, wrap func([]string) []string, flags ...string) (string, int, *schema.Result,
				[]schema.ModelEvent) {
				t.Helper()
				dir, home, temp := filepath.Join(root, "work"), filepath.Join(root, "home"), filepath.Join(root, "temp")
				for _, d := range []string{dir, home, temp} {
					if err := os.RemoveAll(d); err != nil {
						t.Fatal(err)
					}
					if err := os.Mkdir(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				command := append([]string{"assay-run", "--kernel", "require", "--timeout", "3m", "-o",
					filepath.Join(bundles, bundle)}, flags...)
				command = wrap(append(append(command, "--"), agent.setUp(t, dir, home)...))
				cmd := exec.Command(command[0], command[1:]...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+temp, "PWD="+dir, "SHELL=/bin/bash",
					"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
					"OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
					"ANTHROPIC_API_KEY=", "OPENAI_API_KEY=", "CODEX_API_KEY=", "GEMINI_API_KEY=", "GOOGLE_API_KEY=",
					agent.key+"="+key)
				out, _ := cmd.CombinedOutput()
				file := filepath.Join(bundles, bundle)
				if _, err := os.Stat(file); err != nil {
					t.Fatalf("no bundle: %s", out)
				}
				link := filepath.Join(t.TempDir(), "run.tar.gz")
				if err := os.Symlink(file, link); err != nil {
					t.Fatal(err)
				}
				res, lines := modelResult(t, filepath.Dir(link))
				return string(out), cmd.ProcessState.ExitCode(), res, lines
			}
			alone := func(command []string) []string { return command }
			upstream := []string{"--model-gateway", "--model-upstream", agent.route + "=" + provider.URL}
			touched := func(what string) {
				t.Helper()
				if _, err := os.Stat(filepath.Join(root, "work", "by-agent")); err != nil {
					t.Errorf("%s, the agent did not do what its model said: %v", what, err)
				}
			}

			out, code, res, recorded := run("sk-0123456789abcdef", "recorded.tar.gz", alone, upstream...)
			if code != 0 || res.Model.Refused != websockets(recorded) ||
				!slices.ContainsFunc(recorded, func(e schema.ModelEvent) bool {
					return e.Status != nil && *e.Status == http.StatusTooManyRequests
				}) {
				t.Fatalf("the recorded run ended with %d: %+v\n%s", code, res.Model, out)
			}
			touched("recorded")
			chained(t, filepath.Join(bundles, "recorded.tar.gz"), filepath.Join(root, "work", "by-agent"))

			provider.Close()
			out, code, res, again := run("", "again.tar.gz", offline, "--model-replay",
				filepath.Join(bundles, "recorded.tar.gz"))
			if code != 0 || res.Model.Replay == nil || res.Model.Replay.Misses+res.Model.Replay.Unused != 0 {
				t.Errorf("the replay ended with %d: %+v\n%s", code, res.Model, out)
			}
			touched("replayed")
			if d := cmp.Diff(toldOf(t, recorded), toldOf(t, again)); d != "" {
				t.Errorf("the layers (-recorded +replayed):\n%s", d)
			}
			spent := toucher(t, false)
			out, code, res, lines := run("sk-0123456789abcdef", "spent.tar.gz", alone, "--model-gateway",
				"--model-upstream",
				agent.route+"="+spent.URL, "--model-budget", "requests=1")
			var answered, refused int
			for _, e := range lines {
				switch {
				case e.Refused == nil:
					answered++
				case *e.Refused == schema.ModelRefusedBudget:
					refused++
				}
			}
			if res.Outcome != schema.OutcomeExited || code == 0 || answered != 1 || refused == 0 ||
				refused > mostRefused ||
				!slices.Equal(res.LimitsHit, []string{schema.LimitModelRequests}) {
				t.Errorf("beyond its budget, the agent ended with %d, after %d answers and %d refusals: %+v\n%s", code,
					answered, refused, res, out)
			}
		})
	}
}

// chained checks that a bundle joins the model's proposal with what the kernel saw of it.
func chained(t *testing.T, bundle, file string) {
	t.Helper()
	r, err := archive.Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	docs := documents(t, r)
	i := slices.IndexFunc(docs.Correlation.Bindings, func(b schema.Binding) bool {
		return b.ModelSeq != nil && slices.Contains(b.Written, file)
	})
	if i < 0 {
		t.Errorf("no call that the model proposed wrote %s: %+v", file, docs.Correlation)
	}
	if docs.Health.ModelLayer != schema.Complete {
		t.Errorf("model_layer is %s: %+v %+v", docs.Health.ModelLayer, docs.Health.ModelFlow, docs.Health.Reasons)
	}
}

// mostRefused is how often an agent may ask in vain. Claude Code changes what it asks five times before it gives up.
const mostRefused = 6

// websockets counts the requests that asked for one.
func websockets(lines []schema.ModelEvent) (n uint64) {
	for _, e := range lines {
		if e.Refused != nil && *e.Refused == schema.ModelRefusedWebSocket {
			n++
		}
	}
	return n
}
