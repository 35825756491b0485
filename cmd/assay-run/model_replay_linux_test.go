package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
