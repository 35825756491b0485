package harbor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// Harbor names the project of compose after the trial, and its directory is the task's environment.
func TestATrialIsFoundByItsProject(t *testing.T) {
	dir := t.TempDir()
	task := filepath.Join(dir, "tasks", "fix-it")
	write(t, filepath.Join(task, "task.toml"), "")
	write(t, filepath.Join(dir, "jobs", "2026-01-31__10-00", "Fix.It__aB1", "config.json"),
		`{"agent": {"name": "codex", "model_name": "gpt"}, "task": {"path": "x"}}`)
	write(t, filepath.Join(dir, "jobs", "other", "config.json"), "{}")
	labels := map[string]string{"com.docker.compose.project": "fix-it__ab1__env",
		"com.docker.compose.project.working_dir": filepath.Join(task, "environment")}
	at := filepath.Join(dir, "jobs", "2026-01-31__10-00", "Fix.It__aB1")
	want := &Trial{Name: "Fix.It__aB1", Dir: at, Task: task}
	for _, jobs := range []string{filepath.Join(dir, "jobs"), filepath.Dir(at)} {
		if d := cmp.Diff(want, Find(jobs, labels)); d != "" {
			t.Errorf("in %s: %s", jobs, d)
		}
	}
	labels["com.docker.compose.project"] = "fix-it__ab2__env"
	if got := Find(filepath.Join(dir, "jobs"), labels); got != nil {
		t.Errorf("another project is the trial %s", got.Name)
	}
	labels["com.docker.compose.project.config_files"] = "/base.yaml," + filepath.Join(at, "mounts.json")
	for _, jobs := range []string{filepath.Join(dir, "jobs"), filepath.Dir(at)} {
		if d := cmp.Diff(want, Find(jobs, labels)); d != "" {
			t.Errorf("in %s, by a file of the project: %s", jobs, d)
		}
	}
	if got := Find(task, labels); got != nil {
		t.Errorf("a trial of other jobs is %s", got.Name)
	}
	got, done := want.Labels()
	if d := cmp.Diff(map[string]string{"trial": "Fix.It__aB1", "task": "fix-it", "agent": "codex", "model": "gpt"},
		got); d != "" || done {
		t.Errorf("before the result, done %v: %s", done, d)
	}
	write(t, filepath.Join(at, "result.json"), `{"task_name": "terminal/fix-it", "unknown": 1,
		"agent_info": {"name": "codex", "model_info": {"name": "gpt-6"}}, "verifier_result": {"rewards": {"reward": 0.5}}}`)
	got, done = want.Labels()
	if d := cmp.Diff(map[string]string{"trial": "Fix.It__aB1", "task": "terminal/fix-it", "agent": "codex",
		"model": "gpt-6", "reward": "0.5"}, got); d != "" || !done {
		t.Errorf("with the result, done %v: %s", done, d)
	}
}

// Who joined with which command says what a session is for. An agent cannot make the verifier begin earlier.
func TestSessionsHavePhases(t *testing.T) {
	shell := func(text string) []string { return []string{"bash", "-c", text} }
	sessions := []schema.EvaluationSession{
		{Phase: "environment", Argv: []string{"sh", "-c", "sleep infinity"}},
		{Argv: shell("chmod 777 /logs/agent /logs/verifier")},
		{Argv: shell("bash /installed-agent/install.sh")},
		{Argv: shell("claude -p x")},
		{Argv: shell("/tests/test.sh")}, // an agent that asks its harness to run this
		{Argv: shell("chmod 777 /logs/verifier")},
		{Argv: []string{"tmux", "send-keys", "(/tests/test.sh)"}},
		{},
		{Argv: []string{"mkdir", "-p", "/tests"}},
		{Argv: shell("chmod +x /tests/test.sh")},
		{Argv: shell("(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1")},
		{Argv: shell("true")},
	}
	Phases(sessions)
	var got []string
	for _, s := range sessions {
		got = append(got, s.Phase)
	}
	if d := cmp.Diff([]string{"environment", "setup", "setup", "agent", "agent", "agent", "agent", "agent", "verifier",
		"verifier", "verifier", "verifier"}, got); d != "" {
		t.Error(d)
	}
	none := []schema.EvaluationSession{{Phase: "environment"}, {Argv: shell("x")}}
	if Phases(none); none[1].Phase != schema.PhaseAgent {
		t.Errorf("without a verifier, the agent's session is %s", none[1].Phase)
	}
}
