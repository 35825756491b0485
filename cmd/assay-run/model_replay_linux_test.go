package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// TestModelReplay records a run, and repeats it without a key and without the provider.
func TestModelReplay(t *testing.T) {
	const agent = `curl -sS --max-time 60 -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"$0 $WORDS\"}]}" "$ANTHROPIC_BASE_URL/v1/messages"
`
	s := provider(t)
	recordedIn, cmd := modelGateway(t, s, agent, "--kernel", "off")
	if out, err := cmd.Output(); err != nil || string(out) != modelAnswer {
		t.Fatalf("the agent got %q, %v", out, err)
	}
	s.Close()
	bundle := filepath.Join(recordedIn, "run.tar.gz")
	replay := func(script, words string, flags ...string) (string, int, *schema.Result, []schema.ModelEvent, string) {
		t.Helper()
		dir := t.TempDir()
		args := append([]string{"-o", "run.tar.gz", "--kernel", "off", "--model-replay", bundle}, flags...)
		cmd := self(t, dir, append(args, "--", "sh", "-c", script)...)
		cmd.Env = append(cmd.Env, "WORDS="+words, "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=", "CODEX_API_KEY=",
			"GEMINI_API_KEY=",
			"GOOGLE_API_KEY=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if exit := new(*exec.ExitError); err != nil && !errors.As(err, exit) {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "run.tar.gz")); err != nil {
			return string(out), cmd.ProcessState.ExitCode(), nil, nil, stderr.String()
		}
		res, lines := modelResult(t, dir)
		return string(out), cmd.ProcessState.ExitCode(), res, lines, stderr.String()
	}

	out, code, res, lines, stderr := replay(agent, "")
	if out != modelAnswer || code != 0 {
		t.Fatalf("the agent got %q, and the run ended with %d\n%s", out, code, stderr)
	}
	if d := cmp.Diff(&schema.ModelReplay{Answers: 1}, res.Model.Replay); d != "" || *res.Model.Cost != 0 ||
		lines[0].Replayed == nil {
		t.Errorf("the replay (-want +got):\n%s\nof %+v", d, lines[0])
	}

	out, code, res, lines, stderr = replay(agent, "said otherwise")
	if out != modelAnswer || code != 0 || res.Model.Replay.Drifted != 1 || len(lines[0].Replayed.Places) != 1 ||
		!strings.Contains(stderr, "1 request to a model differs from the recorded ones in words") {
		t.Errorf("with other words, the agent got %q, and the run ended with %d: %+v\n%s", out, code, res.Model.Replay,
			stderr)
	}

	out, code, res, _, stderr = replay(agent, "said otherwise", "--model-replay-strict")
	if !strings.Contains(out, "first at /messages/0/content") || code != 125 || res.Error.Code != "model_replay_miss" ||
		res.Model.Replay.Unused != 1 || !strings.Contains(stderr, "1 answer of the replayed bundle was not used") {
		t.Errorf("strictly, the agent got %q, and the run ended with %d: %+v\n%s", out, code, res, stderr)
	}

	if _, code, res, _, _ = replay(agent+agent+"exit 3\n", ""); code != 3 || res.Model.Replay.Misses != 1 {
		t.Errorf("with its own exit code, the run ended with %d: %+v", code, res.Model.Replay)
	}
	if _, code, res, _, stderr = replay("true", "", "--model-key", "anthropic="+bundle); code != 125 || res != nil ||
		!strings.Contains(stderr, "needs no key of anthropic") {
		t.Errorf("with a key, the run ended with %d\n%s", code, stderr)
	}

	digests, cmd := modelGateway(t, provider(t), agent, "--kernel", "off", "--model-bodies", "none")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	bundle = filepath.Join(digests, "run.tar.gz")
	if _, code, res, _, stderr = replay("true", ""); code != 125 || res != nil ||
		!strings.Contains(stderr, "no requests and answers (--model-bodies none)") {
		t.Errorf("a bundle without bodies is replayed with %d\n%s", code, stderr)
	}
	data, err := os.ReadFile(bundle)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(bundle, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, code, res, _, stderr = replay("true", ""); code != 125 || res != nil ||
		!strings.Contains(stderr, "--model-replay") {
		t.Errorf("a bundle that was changed is replayed with %d\n%s", code, stderr)
	}
}

// TestModelReplayWithoutNetwork records answers of each kind, and replays them in a network
// namespace that has nothing but
// a loopback interface. What that records is replayed once more.
func TestModelReplayWithoutNetwork(t *testing.T) {
	need(t, "ip")
	offline := []string{"--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}
	if os.Geteuid() != 0 {
		offline = append([]string{"--user", "--map-root-user"}, offline...)
	}
	if err := exec.Command("unshare", append(offline, "true")...).Run(); err != nil {
		t.Skipf("unshare makes no network namespace here: %v", err)
	}
	const secret = "a-secret-of-the-agent"
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch asked.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"busy"}}`)
		case 2:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, modelAnswer)
		default:
			_, _ = io.WriteString(w,
				`{"type":"message","model":"claude-x","stop_reason":"end_turn","content":[{"type":"text",`+
					`"text":"you said `+secret+`"}],"usage":{"input_tokens":3,"output_tokens":4}}`)
		}
	}))
	defer s.Close()
	const agent = `for i in 1 2 3; do
	curl -sS --max-time 60 -D headers -H "x-api-key: $ANTHROPIC_API_KEY" \
		-d "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"said to $WORDS\"}]}" "$ANTHROPIC_BASE_URL/v1/messages"
	grep -iE '^(HTTP|content-type|retry-after)' headers | tr -d '\r'
done
`
	recordedIn, cmd := modelGateway(t, s, agent, "--kernel", "off", "--secret-env", "MINE")
	cmd.Env = append(cmd.Env, "MINE="+secret)
	recorded, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(recorded, []byte("you said "+secret)) {
		t.Fatalf("the agent got %s", recorded)
	}
	s.Close()
	_, lines := modelResult(t, recordedIn)
	bundle := filepath.Join(recordedIn, "run.tar.gz")
	var before []byte
	for _, what := range []string{"the run", "its replay"} {
		dir := t.TempDir()
		run := self(t, dir, "-o", "run.tar.gz", "--kernel", "off", "--model-replay", bundle, "--", "sh", "-c", agent)
		cmd := exec.Command("unshare", append(slices.Clone(offline), run.Args...)...)
		cmd.Dir, cmd.Env = run.Dir,
			append(run.Env, "WORDS="+what, "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=", "CODEX_API_KEY=",
				"GEMINI_API_KEY=", "GOOGLE_API_KEY=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("the replay of %s: %v\n%s", what, err, &stderr)
		}
		redacted := bytes.LastIndex(out, []byte("you said <redacted:"))
		if redacted < 0 || !strings.Contains(stderr.String(), "1 answer was replayed without the secrets") {
			t.Errorf("the replay of %s has %s\n%s", what, out, &stderr)
		}
		if before == nil { // but for the secret
			before = append(recorded[:bytes.LastIndex(recorded, []byte("you said"))], out[max(redacted, 0):]...)
		}
		if d := cmp.Diff(string(before), string(out)); d != "" {
			t.Errorf("what the agent got in the replay of %s (-want +got):\n%s", what, d)
		}
		before, bundle = out, filepath.Join(dir, "run.tar.gz")
		res, again := modelResult(t, dir)
		if d := cmp.Diff(&schema.ModelReplay{Answers: 3, Drifted: 3, Redacted: 1}, res.Model.Replay); d != "" {
			t.Errorf("the replay of %s (-want +got):\n%s", what, d)
		}
		if res.Model.Cost == nil || *res.Model.Cost != 0 || res.Model.CostUnknown != 0 {
			t.Errorf("the replay of %s costs %v", what, res.Model.Cost)
		}
		for i, e := range again {
			if e.Replayed == nil || e.Replayed.Seq != uint64(i) || e.Replayed.Redacted != (i == 2) ||
				!slices.Equal(e.Replayed.Places, []string{"/messages/0/content"}) {
				t.Errorf("line %d of the replay of %s: %+v", i, what, e.Replayed)
			}
		}
		if d := cmp.Diff(toldOf(t, lines), toldOf(t, again)); d != "" {
			t.Errorf("the layers of %s and of its replay (-want +got):\n%s", what, d)
		}
	}
}

// TestModelReplayOfSomethingElse has bundles that no replay can use, and requests that the recorded run did not make.
func TestModelReplayOfSomethingElse(t *testing.T) {
	recordedIn, cmd := modelGateway(t, provider(t), asks, "--kernel", "off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bundle := filepath.Join(recordedIn, "run.tar.gz")
	other := filepath.Join(t.TempDir(), "run.tar.gz")
	if out, err := self(t, t.TempDir(), "-q", "--kernel", "off", "-o", other, "--",
		"true").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"torn": data[:len(data)/2], "empty": nil, "text": []byte("hello\n")}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(recordedIn, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(recordedIn, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ bundle, says string }{
		{"torn", "truncated"}, {"empty", "the file is empty"}, {"text", "unsupported_format"},
		{"pipe", "not a regular file"}, {"missing", "no such file"}, {other, "has no answers of models"},
	} {
		dir := t.TempDir()
		if !filepath.IsAbs(tt.bundle) {
			tt.bundle = filepath.Join(recordedIn, tt.bundle)
		}
		out, err := self(t, dir, "--kernel", "off", "-o", "run.tar.gz", "--model-replay", tt.bundle, "--", "touch",
			"ran").CombinedOutput()
		if exit := new(*exec.ExitError); !errors.As(err, exit) || (*exit).ExitCode() != 125 ||
			!strings.Contains(string(out), "nothing was run: --model-replay: ") ||
			!strings.Contains(string(out), tt.says) {
			t.Errorf("a replay of %s ended with %v\n%s", tt.bundle, err, out)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("a replay of %s has left %v, %v", tt.bundle, left, err)
		}
	}

	dir := t.TempDir()
	out, err := self(t, dir, "--kernel", "off", "-o", "run.tar.gz", "--model-replay", bundle, "--", "sh", "-c",
		strings.ReplaceAll(asks, `"model":"m"`, `"model":"n"`)).CombinedOutput()
	const why = `its model is "m", and here "n"`
	if exit := new(*exec.ExitError); !errors.As(err, exit) || (*exit).ExitCode() != 125 ||
		strings.Count(string(out), why) != 1 || !strings.Contains(string(out), "line 0 comes nearest") {
		t.Errorf("a replay with another model ended with %v\n%s", err, out)
	}
	res, lines := modelResult(t, dir)
	if len(lines) != 3 || lines[0].Refused == nil || *lines[0].Refused != schema.ModelRefusedMiss ||
		*lines[0].Status != http.StatusBadRequest || !strings.Contains(res.Model.Replay.FirstMiss, why) {
		t.Errorf("the layer: %+v, and the result %+v", lines, res.Model.Replay)
	}
}

// TestModelKeyReachable asks, as each kind of agent, whether it could read the key.
func TestModelKeyReachable(t *testing.T) {
	for _, tt := range []struct {
		name  string
		root  bool // it needs root
		flags []string
		want  bool
		path  string
	}{
		{"the recorder's user", false, nil, true, schema.Unknown},
		{"the agent's own login", false, []string{"--model-key", "anthropic=agent"}, false, schema.Unknown},
		{"another user", true, []string{"--user", "65534"}, false, schema.Unknown},
		{"a sandbox", true, []string{"--mode", "workspace-write"}, false, schema.ModelPathOnly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Getuid() != 0 {
				t.Skip("only root can do that")
			}
			dir, cmd := modelGateway(t, provider(t), "true", append(tt.flags, "--kernel", "off")...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := slices.ContainsFunc(docs.Health.Reasons, func(r schema.Reason) bool {
				return r.Code == "model_key_reachable"
			})
			if got != tt.want || docs.Health.ModelPath != tt.path {
				t.Errorf("the key is reachable: %v, want %v; model_path is %s, want %s, and tamper_resistance %s", got,
					tt.want,
					docs.Health.ModelPath, tt.path, docs.Health.TamperResistance)
			}
		})
	}
}

// TestModelKeyFileIsHidden has a key in a file of the workspace, and one beside it: an agent in a sandbox sees neither.
func TestModelKeyFileIsHidden(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can do that")
	}
	for _, mode := range []string{"workspace-write", "read-only"} {
		for _, place := range []string{"in the workspace", "beside it"} {
			t.Run(mode+", "+place, func(t *testing.T) {
				dir, cmd := modelGateway(t, provider(t), `for f in */key "$1"; do cat "$f" && echo " is read"; done`+"\n"+asks,
					"--mode", mode, "--kernel", "off")
				file := filepath.Join(dir, "sub", "key")
				if place == "beside it" {
					file = filepath.Join(t.TempDir(), "key")
				}
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(modelKey+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd.Args = append(append(slices.Insert(cmd.Args, 1, "--model-key", "anthropic="+file), "sh"), file)
				cmd.Env = append(cmd.Env, "ANTHROPIC_API_KEY=", "MY_COPY=")
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil || string(out) != modelAnswer+"0\n" {
					t.Errorf("the agent got %q, %v\n%s", out, err, &stderr)
				}
			})
		}
	}
}
