package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// agentsEnv names a directory in which npm has installed agents:
//
//	npm install --prefix DIR @openai/codex @google/gemini-cli opencode-ai
const agentsEnv = "ASSAY_TEST_AGENTS"

// model is a model API server that asks for two commands, one a turn, and then
// says that it is done. It speaks as the API of each agent does.
type model struct {
	commands []string
	asked    int // requests that had an answer to every command
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost {
		fmt.Fprint(w, `{"models":[],"data":[]}`)
		return
	}
	send := func(events ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}
	text := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	turn := func(answer string) (string, bool) {
		n := strings.Count(string(body), answer)
		if n >= len(m.commands) || strings.Contains(string(body), "title generator") {
			m.asked++
			return "", false
		}
		return m.commands[n], true
	}
	type object = map[string]any
	switch {
	case strings.HasSuffix(r.URL.Path, "/responses"):
		item := object{"type": "message", "id": "m", "role": "assistant",
			"content": []object{{"type": "output_text", "text": "done"}}}
		if c, more := turn(`"function_call_output"`); more {
			item = object{"type": "function_call", "id": "f", "call_id": "c" + fmt.Sprint(len(body)),
				"name": "exec_command", "arguments": text(object{"cmd": c})}
		}
		send(text(object{"type": "response.created", "response": object{"id": "r"}}),
			text(object{"type": "response.output_item.done", "output_index": 0, "item": item}),
			text(object{"type": "response.completed",
				"response": object{"id": "r",
					"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}}))
	case strings.Contains(r.URL.Path, "enerateContent"):
		part := object{"text": "done"}
		if c, more := turn(`"functionResponse"`); more {
			part = object{"functionCall": object{"name": "run_shell_command", "args": object{"command": c}}}
		}
		answer := text(object{"candidates": []object{{"index": 0, "finishReason": "STOP",
			"content": object{"role": "model", "parts": []object{part}}}},
			"usageMetadata": object{"totalTokenCount": 1}})
		if strings.Contains(r.URL.Path, "stream") {
			send(answer)
		} else {
			fmt.Fprint(w, answer)
		}
	default:
		delta, reason := object{"role": "assistant", "content": "done"}, "stop"
		if c, more := turn(`"role":"tool"`); more {
			delta, reason = object{"role": "assistant",
				"tool_calls": []object{{"index": 0, "id": "c" + fmt.Sprint(len(body)), "type": "function",
					"function": object{"name": "bash", "arguments": text(object{"command": c, "description": "x"})}}}},
				"tool_calls"
		}
		chunk := func(d object, reason any) string {
			return text(object{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "mock",
				"choices": []object{{"index": 0, "delta": d, "finish_reason": reason}}})
		}
		send(chunk(delta, nil), chunk(object{}, reason), "[DONE]")
	}
}

// TestAgentsWork runs real agents inside, against a model server that is only reachable through the proxy: their
// first turn edits a file in the workspace, the second tries to write outside.
func TestAgentsWork(t *testing.T) {
	dir := os.Getenv(agentsEnv)
	if dir == "" {
		t.Skipf("no agents are installed: npm install --prefix DIR @openai/codex @google/gemini-cli "+
			"opencode-ai, and set %s=DIR", agentsEnv)
	}
	for _, a := range []struct {
		name  string
		args  []string
		files map[string]string // below the home directory; @SERVER@ is the server's
		env   []string
	}{
		{name: "codex", args: []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
			"edit a file"},
			files: map[string]string{".codex/config.toml": "model = \"mock\"\nmodel_provider = " +
				"\"mock\"\n[model_providers.mock]\nname = \"mock\"\nbase_url = \"@SERVER@/v1\"\nwire_api " +
				"= \"responses\"\n"}},
		{name: "gemini", args: []string{"--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "edit a file"},
			env:   []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=@SERVER@", "GEMINI_CLI_TRUST_WORKSPACE=true"},
			files: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{"disableAutoUpdate":true}}`}},
		{name: "opencode", args: []string{"run", "-m", "mock/mock", "edit a file"},
			files: map[string]string{".config/opencode/opencode.json": `{"autoupdate":false,"permission":{"*":"allow","bash":"allow","external_directory":"allow"},"provider":{"mock":{"npm":"@ai-sdk/openai-compatible","name":"mock","options":{"baseURL":"@SERVER@/v1","apiKey":"x"},"models":{"mock":{"name":"mock"}}}}}`}},
	} {
		t.Run(a.name, func(t *testing.T) {
			for _, w := range everybody {
				t.Run(w.name, func(t *testing.T) {
					program := filepath.Join(dir, "node_modules", ".bin", a.name)
					if _, err := os.Stat(program); err != nil {
						t.Skipf("%s is not installed: %v", a.name, err)
					}
					j := shell(t, "")
					top := filepath.Dir(j.Dir)
					home, evil := filepath.Join(top, "home"), filepath.Join(top, "evil.txt")
					m := &model{commands: []string{"echo edited > edited.txt", "echo evil > " + evil}}
					l, err := net.Listen("tcp", outward(t)+":0")
					if err != nil {
						t.Fatal(err)
					}
					server := &httptest.Server{Listener: l, Config: &http.Server{Handler: m}}
					server.Start()
					defer server.Close()
					put := strings.NewReplacer("@SERVER@", server.URL)
					for name, text := range a.files {
						path := filepath.Join(home, name)
						if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(path, []byte(put.Replace(text)), 0o644); err != nil {
							t.Fatal(err)
						}
					}
					j.Args, j.Home = append([]string{program}, a.args...), home
					j.Env = []string{"HOME=" + home, "PWD=" + j.Dir}
					for _, e := range a.env {
						j.Env = append(j.Env, put.Replace(e))
					}
					j.Settings.Filesystem = &sandboxfile.Filesystem{AllowWrite: []string{"~"}}
					j.Settings.Network = &sandboxfile.Network{AllowedDomains: []string{l.Addr().String()}}
					if w.noUserns {
						j.Settings.OnUnavailable = sandboxfile.Degrade
					}
					chown(t, top, w.uid)
					o := w.run(t, j)
					if _, err := os.Stat(filepath.Join(j.Dir, "edited.txt")); err != nil {
						t.Errorf("the file in the workspace was not written: %+v\n%s", o, o.out)
					}
					if _, err := os.Stat(evil); err == nil {
						t.Error("the file outside was written")
					}
					if m.asked == 0 {
						t.Errorf("the agent did not come back after both commands: %+v\n%s", o, o.out)
					}
				})
			}
		})
	}
}

// outward is an address of this host that is not loopback: programs use a proxy only for such addresses.
func outward(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this host has no address but loopback's")
	return ""
}
