//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// recipeAgent is an agent's program: it does what each recipe says of its agent, as far as sh can. It asks its model,
// reports a call by a hook if its settings name one, and solves the task.
const recipeAgent = `#!/bin/sh
set -e
name=${0##*/}
echo "$name" "$@"
ask() { wget -q -O - --header "$1" --header 'Content-Type: application/json' --post-data "$3" "$2"; }
case $name in
claude) file=.claude/assay_shell hook=claude-code ;;
codex) file= hook= ;;
gemini) file=.gemini/settings.json hook= ;;
opencode) file=.config/opencode/plugin/assay-run.js hook= ;;
qwen) file=.qwen/settings.json hook=qwen-code ;;
pi) file=.pi/agent/extensions/assay-run.js hook= ;;
esac
test -z "$file" || grep -q assay "$HOME/$file" || test -x "$HOME/$file"
case $name in
codex | qwen) ask "Authorization: Bearer $OPENAI_API_KEY" "$OPENAI_BASE_URL/responses" '{"model": "m", "input": "x"}' ;;
gemini) ask "x-goog-api-key: $GEMINI_API_KEY" "$GOOGLE_GEMINI_BASE_URL/v1beta/models/m:generateContent" '{"contents": []}' ;;
*) ask "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/messages" '{"model": "m", "messages": []}' ;;
esac
report() {
  echo '{"hook_event_name": "'$1'", "tool_name": "Bash", "tool_use_id": "call-1", "tool_input": {}}' | assay-run hook $hook
}
test -z "$hook" || report PreToolUse >/dev/null
ASSAY_TOOL_CALL_ID=call-1 sh -c 'echo 42 >/work/answer.txt'
test -z "$hook" || report PostToolUse
`

// recipeAnswers are the provider's answers, by the last part of the path.
var recipeAnswers = map[string]string{
	"messages": modelAnswer,
	"responses": `{"id":"r","object":"response","model":"m","status":"completed","output":[],` +
		`"usage":{"input_tokens":11,"output_tokens":9,"total_tokens":20}}`,
	"m:generateContent": `{"candidates":[],"modelVersion":"m",` +
		`"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":9,"totalTokenCount":20}}`,
}

// TestRecipesInContainers attempts a task in a container without a network by the agent of each recipe. The agent's
// command line and files are those of the recipe, its model is reached through the gateway alone, and its calls are in
// the bundle.
func TestRecipesInContainers(t *testing.T) {
	layertest.Host(t)
	e := enginetest.Docker(t)
	dir, programs := t.TempDir(), t.TempDir()
	built, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !strings.Contains(fmt.Sprint(r.Header), modelKey) {
			t.Errorf("the provider was asked for %s without the key: %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, recipeAnswers[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]])
	}))
	defer provider.Close()
	routes := map[string]string{"claude-code": "anthropic", "codex": "openai", "gemini-cli": "gemini",
		"opencode": "anthropic", "qwen-code": "openai", "pi": "anthropic"}
	keys := map[string]string{"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
	said := map[string]string{
		"claude-code": "claude -p Write 42 to /work/answer.txt.",
		"codex": `codex -c sandbox_mode="danger-full-access" -c approval_policy="never" -c openai_base_url=` +
			`"http://127.0.0.1:`,
		"gemini-cli": "gemini --yolo --skip-trust -p Write 42 to /work/answer.txt.",
		"opencode":   "opencode run Write 42 to /work/answer.txt.",
		"qwen-code":  "qwen --yolo -p Write 42 to /work/answer.txt.",
		"pi":         "pi -p Write 42 to /work/answer.txt.",
		"own":        "claude -p --model m Write 42 to /work/answer.txt.",
	}
	suite := "name: recipes\ntasks: task\nretries: 0\nagents:\n"
	add := func(name, recipe, more string) {
		suite += fmt.Sprintf("- {name: %s, recipe: %s, env: [%s], model: {upstreams: {%s: %q}}, files: files, "+
			"setup: sh /opt/assay-agent/install%s}\n", name, recipe, keys[routes[recipe]], routes[recipe], provider.URL,
			more)
	}
	for _, name := range agents.Names() {
		add(name, name, "")
	}
	add("own", "claude-code", `, command: 'claude -p --model m "$ASSAY_TASK_PROMPT"'`)
	suite += "- {name: missing, recipe: pi, env: [ANTHROPIC_API_KEY]}\n"
	for name, text := range map[string]string{
		"suite.yaml":    suite,
		"files/agent":   recipeAgent,
		"files/install": "for p in claude codex gemini opencode qwen pi; do cp /opt/assay-agent/agent /bin/$p; done\n",
		"task/task.toml": "[agent]\nuser = \"agent\"\n[environment]\ndocker_image = \"assay-test\"\n" +
			"network_mode = \"none\"\nworkdir = \"/work\"\n",
		"task/instruction.md": "Write 42 to /work/answer.txt.",
		"task/tests/test.sh": "#!/bin/sh\n" +
			"if [ \"$(cat /work/answer.txt)\" = 42 ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(programs, "assay-suite")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "assay-suite"), "run", "suite.yaml", "--dir", "out", "--jobs", "2")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(e.Env, "PATH="+programs+":"+built+":"+os.Getenv("PATH"), "HOME="+dir,
		"ANTHROPIC_API_KEY="+modelKey, "OPENAI_API_KEY="+modelKey, "GEMINI_API_KEY="+modelKey)...)
	out, _ := cmd.CombinedOutput() // it ends with 2: an attempt is infrastructure
	for name := range said {
		if !bytes.Contains(out, []byte("task/"+name+"/1: passed\n")) ||
			bytes.Contains(out, []byte("warning: task/"+name+"/1: ")) {
			t.Errorf("%s did not pass without suspicions:\n%s", name, out)
			continue
		}
		bundle := filepath.Join(dir, "out/attempts/task", name, "1/try-1/run.tar.gz")
		set, err := view.Open(t.Context(), []string{bundle}, view.Options{})
		if err != nil {
			t.Fatal(err)
		}
		docs := set.Bundles[0].Docs
		if docs.Health.ModelPath != schema.ModelPathAlone && docs.Health.ModelPath != schema.ModelPathOnly {
			t.Errorf("%s: the path to the model is %q", name, docs.Health.ModelPath)
		}
		if docs.Result.Model == nil || docs.Result.Model.Requests != 1 {
			t.Errorf("%s: the model layer has %+v", name, docs.Result.Model)
		}
		if hooks := name == "claude-code" || name == "qwen-code" || name == "own"; hooks &&
			(len(docs.Correlation.Bindings) != 1 || len(docs.Correlation.Bindings[0].Written) == 0) {
			t.Errorf("%s: correlation: %+v", name, docs.Correlation)
		}
		set.Close()
		text, err := exec.Command("tar", "-xzOf", bundle, "stdio/stdout").Output()
		if err != nil || !strings.HasPrefix(string(text), said[name]) {
			t.Errorf("%s: %v: it was started as %s", name, err, text)
		}
	}
	if n := asked.Load(); n != int64(len(said)) {
		t.Errorf("the provider was asked %d times, want %d", n, len(said))
	}
	if want := "task/missing/1: infrastructure (engine): the container has no program pi in its PATH"; !bytes.Contains(
		out, []byte(want)) {
		t.Errorf("it does not say %q:\n%s", want, out)
	}
}
