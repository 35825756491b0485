package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// claude does with hooks and a Bash tool what Claude Code 2.1.330 was seen to
// do: every command line goes to the shell that it is told to put before it,
// and the hook gets each event on stdin and may change a tool's input.
const claude = `
import json, os, subprocess, sys, time

spool, observed = sys.argv[1], sys.argv[2] == "true"
settings = json.load(open(".claude/settings.json"))["hooks"]
prefix = os.environ.get("CLAUDE_CODE_SHELL_PREFIX")
env = {**os.environ, "CLAUDE_PROJECT_DIR": os.getcwd(), "AI_AGENT": "claude-code_2-1-330_harness"}

def line(command, shell):
    return [shell, "-c", f"'{prefix}' " + "'" + command.replace("'", "'\"'\"'") + "'" if prefix else command]

def recorded(layer, *texts):
    """A window's edges are when the runner heard of the call: what is to be inside waits for that."""
    path = f"{spool}/{os.environ['ASSAY_RUNNER_RUN_ID']}/layers/{layer}.ndjson"
    while not os.path.exists(path) or not any(all(t in l for t in texts) for l in open(path)):
        time.sleep(0.005)

def hook(name, **event):
    event = {"session_id": "s", "transcript_path": "/t.jsonl", "cwd": os.getcwd(), "prompt_id": "p", "permission_mode": "default",
             "effort": {"level": "medium"}, "hook_event_name": name, **event}
    answer = ""
    for matcher in settings.get(name, []):
        assert matcher.get("matcher", "*") == "*"
        for h in matcher["hooks"]:
            done = subprocess.run(line(h["command"], "/bin/sh"), input=json.dumps(event), capture_output=True, text=True, env=env)
            assert done.returncode == 0, done.stderr
            answer += done.stdout
    return json.loads(answer)["hookSpecificOutput"] if answer else {}

def pre(id, tool, **input):
    answer = hook("PreToolUse", tool_name=tool, tool_input=input, tool_use_id=id)
    assert "permissionDecision" not in answer, answer
    recorded("sdk", "tool_call_started", f'"{id}"')
    return answer.get("updatedInput", input)

def start(id, command):
    given = pre(id, "Bash", command=command, description="d")
    assert given["description"] == "d"
    quoted = given["command"].replace("'", "'\"'\"'")
    return subprocess.Popen(line(f"eval '{quoted}' < /dev/null && pwd -P >| {os.getcwd()}/cwd-{id}", "/bin/bash"), env=env)

def end(id, tool, error=None, **more):
    if error:
        return hook("PostToolUseFailure", tool_name=tool, tool_use_id=id, error=error, is_interrupt=False, duration_ms=1, tool_input={})
    hook("PostToolUse", tool_name=tool, tool_use_id=id, tool_response={}, duration_ms=1, tool_input={})

def batch(*ids):
    hook("PostToolBatch", tool_calls=[{"tool_name": "Bash", "tool_input": {}, "tool_use_id": id, "tool_response": "r"} for id in ids])

hook("SessionStart", source="startup")
one, two = start("toolu_1", "echo \"it's\" > shell-1; sleep 0.1; touch child-1"), start("toolu_2", "cat <<E > shell-2\nx\nE\nsleep 0.1; touch child-2; cd /")
assert one.wait() == 0 and two.wait() == 0
end("toolu_1", "Bash")
end("toolu_2", "Bash")
batch("toolu_1", "toolu_2")
assert open("cwd-toolu_2").read() == "/\n"  # a command's last directory is the next one's
pre("toolu_denied", "Bash", command="touch denied")
hook("PermissionRequest", tool_name="Bash", tool_input={}, permission_suggestions=[])
batch("toolu_denied")
assert start("toolu_3", "touch child-3; exit 3").wait() == 3
if observed:
    recorded("kernel", '/child-3"', '"utime"')
end("toolu_3", "Bash", error="Exit code 3")
batch("toolu_3")
pre("toolu_4", "Write", file_path="written-4", content="x")
open("written-4", "w").write("x")
if observed:
    recorded("kernel", '/written-4"', '"write"')
end("toolu_4", "Write")
batch("toolu_4")
hook("Stop", stop_hook_active=False)
hook("SessionEnd", reason="clear")
hook("SessionStart", source="clear")
hook("SessionEnd", reason="other")
`

// claudeProject is a directory that is set up as the README of the shims says.
func claudeProject(t *testing.T) string {
	t.Helper()
	need(t, "python3")
	need(t, "bash")
	programInPath(t)
	dir := t.TempDir()
	shims := filepath.Join(dir, ".claude", "shims")
	if err := os.CopyFS(shims, os.DirFS(filepath.Join("..", "..", "testdata", "shims"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(shims, "claude-code", "settings.json"),
		filepath.Join(dir, ".claude", "settings.json")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// programInPath puts assay-run into PATH, as this very program.
func programInPath(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(dir, "assay-run")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// changed is which call was the first to change each file of a directory, and
// how that is known.
func changed(t *testing.T, r *archive.Reader, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		name, here := strings.CutPrefix(e.Value, dir+"/")
		if here && (e.Kind == schema.KindWrite || e.Kind == schema.KindUtime) && found[name] == "" {
			found[name] = fmt.Sprintf("%s by %s", e.ToolCallID, e.BoundBy)
		}
	})
	return found
}

func TestClaudeCodeHooks(t *testing.T) {
	layertest.Host(t)
	for _, shell := range []bool{true, false} {
		t.Run(fmt.Sprintf("assay_shell %v", shell), func(t *testing.T) {
			dir := claudeProject(t)
			want := map[string]string{"child-3": "toolu_3 by window", "written-4": "toolu_4 by window"}
			if shell {
				t.Setenv("CLAUDE_CODE_SHELL_PREFIX",
					filepath.Join(dir, ".claude", "shims", "claude-code", "assay_shell"))
				want = map[string]string{
					"shell-1": "toolu_1 by env", "child-1": "toolu_1 by env", "shell-2": "toolu_2 by env",
					"child-2": "toolu_2 by env",
					"child-3": "toolu_3 by env", "written-4": "toolu_4 by window",
				}
			}
			spool := t.TempDir()
			r := runBundle(t, dir, "--spool-dir", spool, "--agent-shim", "claude-code", "--sdk-event-log", "sdk.ndjson",
				"--", "python3", "-c", claude, spool, strconv.FormatBool(observes()))
			docs, err := r.Documents(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			wantSDK(t, docs, 11, 5)
			if !observes() {
				return
			}
			hooks := 0
			kernelEvents(t, r, func(e *schema.KernelEvent) {
				if e.Kind != schema.KindExec ||
					!strings.Contains(strings.Join(e.Argv, " "), "assay-run hook claude-code") {
					return
				}
				hooks++
				if e.Class != schema.ClassRunner || e.ToolCallID != "" {
					t.Errorf("%q is class %s, of call %q", e.Argv, e.Class, e.ToolCallID)
				}
			})
			if hooks < 2*11 { // a shell and the program for each line of the log
				t.Errorf("%d programs were executed for hooks", hooks)
			}
			for _, b := range docs.Correlation.Bindings {
				if strings.Contains(strings.Join(b.Commands, "\n"), "assay-run hook") {
					t.Errorf("%s has commands of hooks: %q", b.ToolCallID, b.Commands)
				}
			}
			got := changed(t, r, dir)
			for file, call := range want {
				if got[file] != call {
					t.Errorf("%s is changed in %q, want %q", file, got[file], call)
				}
			}
		})
	}
}

// TestClaudeCode runs Claude Code itself against a scripted model. It is not
// free software and takes some hundred megabytes, so that who wants this test
// names the program; "make test-claude-code" gets it from npm.
func TestClaudeCode(t *testing.T) {
	program := os.Getenv("ASSAY_TEST_CLAUDE_CODE")
	if program == "" {
		t.Skip("ASSAY_TEST_CLAUDE_CODE does not name Claude Code's program")
	}
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	dir := claudeProject(t)
	shim := filepath.Join(dir, ".claude", "shims", "claude-code")
	for name, value := range map[string]string{
		"CLAUDE_CODE_SHELL_PREFIX": filepath.Join(shim, "assay_shell"), "HOME": t.TempDir(),
		"CLAUDE_CODE_TMPDIR": t.TempDir(), "CLAUDE_CONFIG_DIR": "", "CLAUDECODE": "", "SHELL": "/bin/bash",
	} {
		t.Setenv(name, value)
	}
	bin, err := exec.LookPath("assay-run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Unsetenv("CLAUDE_CONFIG_DIR"); err != nil { // its home is in HOME
		t.Fatal(err)
	}
	session := func(bundle string) {
		t.Helper()
		cmd := exec.Command("python3", filepath.Join(shim, "model.py"), filepath.Join(shim, "turns.json"),
			bin, "-q", "--kernel", "require", "--timeout", "60s", "-o", bundle, "--agent-shim", "claude-code",
			"--sdk-event-log", bundle+".ndjson",
			"--", program, "-p", "Follow the script.", "--permission-mode", "acceptEdits", "--allowedTools",
			"Bash(cat:*)", "Bash(sleep:*)")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	session("b.tar.gz")
	declared(t, filepath.Join(dir, "b.tar.gz"), "claude-code", true)
	unaccused(t, filepath.Join(dir, "b.tar.gz"), "claude-code")
	verify := exec.Command(bin, "verify", filepath.Join(dir, "b.tar.gz"))
	if out, err := verify.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := archive.Open(filepath.Join(dir, "b.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := r.Documents(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	wantSDK(t, docs, 15, 7)
	got := changed(t, r, dir)
	for file, want := range map[string]string{"shell.txt": "toolu_shell by env", "child.txt": "toolu_child by env"} {
		if got[file] != want {
			t.Errorf("%s is changed in %q, want %q", file, got[file], want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "denied.txt")); err == nil {
		t.Error("the call that was not permitted was made")
	}
	reads := map[string]int{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		if e.Kind == schema.KindExec && slices.Contains([]string{"toolu_read1", "toolu_read2"}, e.ToolCallID) &&
			e.BoundBy == schema.BoundByEnv {
			reads[e.ToolCallID]++
		}
		if strings.HasPrefix(e.Value, filepath.Join(dir, "note.txt")) && e.Kind == schema.KindWrite &&
			e.ToolCallID != "toolu_write" {
			t.Errorf("%s of %s is bound to %q", e.Kind, e.Value, e.ToolCallID)
		}
	})
	if len(reads) != 2 {
		t.Errorf("of two calls at a time these have processes by env: %v", slices.Sorted(maps.Keys(reads)))
	}

	settings := readJSON(t, filepath.Join(dir, ".claude", "settings.json"))
	besides := map[string]any{"type": "command", "command": "touch besides"}
	settings["hooks"].(map[string]any)["SessionStart"] = []any{map[string]any{"hooks": []any{besides}}}
	write(t, filepath.Join(dir, ".claude", "settings.json"), settings)
	for _, made := range []string{"shell.txt", "child.txt", "note.txt"} {
		if err := os.RemoveAll(filepath.Join(dir, made)); err != nil {
			t.Fatal(err)
		}
	}
	session("besides.tar.gz")
	declared(t, filepath.Join(dir, "besides.tar.gz"), "claude-code", false)
}
