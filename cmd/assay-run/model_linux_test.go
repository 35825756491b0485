package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

const modelKey = "sk-ant-0123456789abcdef"

// modelAnswer is what the provider of these tests says: a stream of Anthropic's.
const modelAnswer = `data: {"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":11,` +
	`"cache_read_input_tokens":7,"cache_creation_input_tokens":5}}}` + "\n\n" +
	`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}` + "\n\n" +
	`data: {"type":"message_stop"}` + "\n\n"

// provider answers each request, and checks that it brings the key.
func provider(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != modelKey || r.URL.Path != "/v1/messages" {
			t.Errorf("the provider was asked for %s with the key %q", r.URL, r.Header.Get("X-Api-Key"))
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, modelAnswer)
		_ = http.NewResponseController(w).Flush() // no length: the agent sees the end when the gateway is done
	}))
	t.Cleanup(s.Close)
	return s
}

// asks is an agent that asks a model, then tries another key, and tells what it found in its environment.
const asks = `set -e
ask() { curl -sS --max-time 60 -H "x-api-key: $1" -d '{"model":"m","stream":true,"messages":[]}' "$ANTHROPIC_BASE_URL$2"; }
ask "$ANTHROPIC_API_KEY" /v1/messages
ask another /v1/messages >/dev/null
ask "$ANTHROPIC_API_KEY" /v1/files >/dev/null
env | grep -c sk-ant- || true
`

// modelGateway runs a shell script under assay-run with the gateway in front of a provider.
func modelGateway(t *testing.T, s *httptest.Server, script string, flags ...string) (dir string, cmd *exec.Cmd) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	dir = t.TempDir()
	args := append([]string{"-q", "-o", "run.tar.gz", "--model-gateway", "--model-upstream", "anthropic=" + s.URL},
		flags...)
	cmd = self(t, dir, append(args, "--", "sh", "-c", script)...)
	cmd.Env = append(cmd.Env, "ANTHROPIC_API_KEY="+modelKey, "MY_COPY="+modelKey, "OPENAI_API_KEY=", "CODEX_API_KEY=",
		"GEMINI_API_KEY=", "GOOGLE_API_KEY=")
	return dir, cmd
}

// What was asked of a model while the disk was full is missing, and the bundle and the exit code say so.
func TestModelGatewayOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	disk := smallDisk(t, "2m")
	dir, cmd := modelGateway(t, provider(t), `cat /dev/zero >`+disk+`/fill
curl -sS --max-time 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m","messages":[]}' \
	"$ANTHROPIC_BASE_URL/v1/messages"
exit 0`, "--spool-dir", disk, "--kernel", "off")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 125 {
		t.Errorf("exit code %d, want 125\n%s", code, out)
	}
	var h schema.ObservationHealth
	if err := json.Unmarshal(members(t, filepath.Join(dir, "run.tar.gz"))[schema.HealthPath], &h); err != nil {
		t.Fatal(err)
	}
	unwritten := slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool {
		return r.Subject == "model" && r.Code == "model_not_written"
	})
	if h.ModelLayer != schema.Partial || !unwritten {
		t.Errorf("the model layer is %s: %+v", h.ModelLayer, h.Reasons)
	}
}

// members are those of a bundle.
func members(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestModelGateway(t *testing.T) {
	modes := []string{"observe"}
	if os.Getuid() == 0 {
		modes = append(modes, "workspace-write") // whose network is a namespace with a door
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			dir, cmd := modelGateway(t, provider(t), asks, "--mode", mode)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || string(out) != modelAnswer+"0\n" {
				t.Fatalf("the agent got %q, %v\n%s", out, err, &stderr)
			}
			r := opened(t, dir)
			var lines []string
			layerLines(t, r, schema.ModelPath, func(line []byte) {
				var e schema.ModelEvent
				if err := json.Unmarshal(line, &e); err != nil {
					t.Fatal(err)
				}
				status, refused := 0, ""
				if e.Status != nil {
					status = *e.Status
				}
				if e.Refused != nil {
					refused = *e.Refused
				}
				lines = append(lines, strings.TrimSpace(e.Path+" "+http.StatusText(status)+" "+refused))
			})
			want := []string{"/anthropic/v1/messages OK", "/anthropic/v1/messages Unauthorized credential",
				"/anthropic/v1/files Forbidden path"}
			if d := cmp.Diff(want, lines); d != "" {
				t.Errorf("the layer (-want +got):\n%s", d)
			}
			docs, err := r.Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			total := &schema.ModelTotals{Requests: 3, Refused: 2, CostUnknown: 1, ModelUsage: schema.ModelUsage{
				InputTokens: new(int64(23)), CacheReadInputTokens: new(int64(7)),
				CacheCreationInputTokens: new(int64(5)), OutputTokens: new(int64(9))}}
			if d := cmp.Diff(total, docs.Result.Model); d != "" {
				t.Errorf("result.json (-want +got):\n%s", d)
			}
			if layer := docs.Health.ModelLayer; layer != schema.Unconfirmed &&
				(layer != schema.Complete || docs.Health.KernelState != schema.Complete) {
				t.Errorf("model_layer is %s beside a kernel layer that is %s: %+v", layer, docs.Health.KernelState,
					docs.Health.ModelFlow)
			}
			if mode != "observe" && docs.Health.ModelPath != schema.ModelPathOnly {
				t.Errorf("model_path is %s", docs.Health.ModelPath)
			}
			reachable := false
			for _, reason := range docs.Health.Reasons {
				reachable = reachable || reason.Code == "model_key_reachable"
			}
			if reachable != (docs.Health.TamperResistance == schema.ResistsNone) {
				t.Errorf("model_key_reachable is %v, and tamper_resistance %s", reachable,
					docs.Health.TamperResistance)
			}
			for name, data := range members(t, filepath.Join(dir, "run.tar.gz")) {
				if bytes.Contains(data, []byte(modelKey)) {
					t.Errorf("the key is in %s", name)
				}
			}
		})
	}
}

// TestModelGatewayTellsWhoAsked holds the process in the model layer against the kernel layer.
func TestModelGatewayTellsWhoAsked(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	twice := `for i in 1 2; do set -- "$@" "$ANTHROPIC_BASE_URL/v1/messages"; done
curl -sS --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" -H "Connection: close" -d '{"messages":[]}' "$@" >/dev/null
`
	dir, cmd := modelGateway(t, provider(t), asks+twice, "--kernel", "require")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := opened(t, dir)
	curls := map[uint64]bool{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		if e.Kind == schema.KindExec && strings.HasSuffix(e.Value, "/curl") {
			curls[e.ExecID] = true
		}
	})
	asked := map[uint64]bool{}
	layerLines(t, r, schema.ModelPath, func(line []byte) {
		var e schema.ModelEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.ExecID == nil {
			t.Fatalf("nobody knows who asked %s", line)
		}
		asked[*e.ExecID] = true
	})
	if d := cmp.Diff(curls, asked); d != "" || len(curls) != 4 {
		t.Errorf("processes of curl, and those that asked (-curl +asked):\n%s", d)
	}
}

// TestModelPath asks by the gateway alone, and then the provider itself as well.
func TestModelPath(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	upstream := provider(t)
	for _, tt := range []struct {
		name, script, path string
		exit               int
	}{
		{"alone", asks, schema.ModelPathAlone, 0},
		{"bypass", asks + "curl -sS --max-time 60 -H 'x-api-key: " + modelKey + "' -d '{}' " + upstream.URL +
			"/v1/messages >/dev/null\n", schema.ModelPathBypass, 125},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, cmd := modelGateway(t, upstream, tt.script, "--kernel", "require",
				"--require", "model_path=alone,complete")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != tt.exit {
				t.Fatalf("%v\n%s", err, out)
			}
			if tt.exit != 0 && !strings.Contains(string(out), "model_path is bypass_possible") {
				t.Errorf("it says:\n%s", out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			h := docs.Health
			if h.ModelLayer != schema.Complete || h.ModelPath != tt.path {
				t.Errorf("model_layer is %s and model_path %s: %+v %v", h.ModelLayer, h.ModelPath, h.ModelFlow,
					h.Reasons)
			}
			if f := h.ModelFlow; f == nil || f.Connections != 3 || f.FromGateway == 0 || f.KernelFromGateway == 0 {
				t.Errorf("model_flow is %+v", f)
			}
			if tt.exit == 0 {
				return
			}
			if len(h.ModelBypasses) != 1 || !strings.HasSuffix(h.ModelBypasses[0].Exe, "/curl") ||
				"http://"+h.ModelBypasses[0].Endpoint != upstream.URL || h.ModelBypasses[0].BytesIn == 0 {
				t.Errorf("bypasses: %+v", h.ModelBypasses)
			}
		})
	}
}

// TestModelChain has a model propose a call, an agent do it without telling anybody but the model, and the bundle tell
// what it did.
func TestModelChain(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte("tool_result")) {
			_, _ = io.WriteString(w, `{"type":"message","content":[],"stop_reason":"end_turn"}`)
			return
		}
		_, _ = io.WriteString(w, `{"type":"message","content":[{"type":"tool_use","id":"toolu_1","name":"Bash",`+
			`"input":{"command":"touch made"}}],"stop_reason":"tool_use"}`)
	}))
	t.Cleanup(upstream.Close)
	dir, cmd := modelGateway(t, upstream, `set -e
ask() { curl -sS --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" -d "$1" "$ANTHROPIC_BASE_URL/v1/messages" >/dev/null; }
touch before
ask '{"messages":[]}'
touch made
ask '{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":""}]}]}'
touch after
`, "--kernel", "require")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := opened(t, dir)
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := docs.Correlation
	if len(c.Bindings) != 1 || c.Status != schema.Clean {
		t.Fatalf("the report: %+v", c)
	}
	b := c.Bindings[0]
	if b.ToolCallID != "toolu_1" || b.Tool != "Bash" || b.Method != schema.BoundByWindow || b.ModelSeq == nil ||
		*b.ModelSeq != 0 || b.MatchedBy != schema.MatchedByID {
		t.Errorf("the call: %+v", b)
	}
	if d := cmp.Diff([]string{filepath.Join(dir, "made")}, b.Written); d != "" {
		t.Errorf("what it wrote (-want +got):\n%s", d)
	}
	bound := map[string]string{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		if e.Kind == schema.KindOpen && e.Creates() && filepath.Dir(e.Value) == dir {
			bound[filepath.Base(e.Value)] = e.ToolCallID
		}
	})
	if d := cmp.Diff(map[string]string{"before": "", "made": "toolu_1", "after": ""}, bound); d != "" {
		t.Errorf("files and their calls (-want +got):\n%s", d)
	}

	verdicts := judged(t, filepath.Join(dir, "run.tar.gz"),
		&schema.EvaluationDefinition{Protected: []string{"before", "made"}})
	for _, v := range verdicts {
		for _, f := range v.Findings {
			if called := f.ToolCallID != ""; strings.HasSuffix(f.Text, "/made") != called ||
				called != (f.ModelSeq != nil) {
				t.Errorf("a finding: %+v", f)
			}
		}
	}
	if v := verdicts[0]; v.Rule != "edits_protected" || len(v.Findings) < 2 {
		t.Errorf("the first verdict: %+v", v)
	}
}

// TestModelGatewayKilled seals what was recorded when the recorder is killed.
func TestModelGatewayKilled(t *testing.T) {
	dir, cmd := modelGateway(t, provider(t), asks+"echo ready\nsleep 600\n", "--kernel", "off", "--no-capture")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len(modelAnswer)+len("0\nready\n"))
	if _, err := io.ReadFull(out, said); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 3; { // the recorder is beside the path
		layers, err := filepath.Glob(filepath.Join(dir, ".state", "assay-run", "spool", "*", "layers", "model.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range layers {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			n = bytes.Count(data, []byte("\n"))
		}
		time.Sleep(10 * time.Millisecond) // it is only asked again
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := opened(t, dir)
	if n := layerLines(t, r, schema.ModelPath, func([]byte) {}); n != 3 {
		t.Errorf("the layer has %d lines, want 3", n)
	}
}

// A container of the run reaches the gateway at the command's address, without a network of its own.
func TestModelGatewayFromContainers(t *testing.T) {
	layertest.Host(t)
	e, s := enginetest.Docker(t), provider(t)
	dir, cmd := modelGateway(t, s, `ask='wget -q -O- --header "x-api-key: $ANTHROPIC_API_KEY" --post-data "{\"model\":\"m\",\"messages\":[]}" $ANTHROPIC_BASE_URL/v1/messages'
id=$(docker run -d --network none `+enginetest.Image+` sleep 1000)
for where in "exec -e ANTHROPIC_BASE_URL -e ANTHROPIC_API_KEY $id" \
	"run --rm --network host -e ANTHROPIC_BASE_URL -e ANTHROPIC_API_KEY `+enginetest.Image+`" \
	"run --rm --network container:$id -e ANTHROPIC_BASE_URL -e ANTHROPIC_API_KEY `+enginetest.Image+`"; do
	docker $where sh -c "$ask" | grep -c message_stop
done`, "--containers")
	cmd.Env = append(cmd.Env, e.Env...)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "1\n") != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	files := members(t, filepath.Join(dir, "run.tar.gz"))
	if n := bytes.Count(files[schema.ModelPath], []byte("\n")); n != 3 {
		t.Errorf("%d requests are recorded, want 3:\n%s", n, files[schema.ModelPath])
	}
	if bytes.Contains(files[schema.EventsPath], []byte("container_without_gateway")) {
		t.Errorf("a container had no listener:\n%s", files[schema.EventsPath])
	}
}
