package task

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// folder writes a task's folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a-task")
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func host(name string) (string, bool) {
	value, set := map[string]string{"SET": "here", "EMPTY": ""}[name]
	return value, set
}

func TestATaskIsReadWhole(t *testing.T) {
	dir := folder(t, map[string]string{
		"task.toml": `schema_version = "1.2"
[metadata]
any = ["thing"]
[agent]
timeout_sec = 2.5
user = 1000
[verifier]
user = "root"
env = { A = "x${SET}y", B = "${UNSET:-z}", C = "${EMPTY:-e}" }
[environment]
cpus = 2
memory = "1.5G"
allow_internet = false
workdir = "/solution/work"
[environment.healthcheck]
command = "true"
`,
		"instruction.md": "Write `/solution/work/a.txt`, then /etc/cron.d/x. See /tests/test.sh, a/b and /x.",
		Test:             "#!/bin/sh\n", Solve: "true\n", "environment/Dockerfile": "FROM x\n",
	})
	got, err := Read(dir, false, host)
	if err != nil {
		t.Fatal(err)
	}
	second := Duration(time.Second)
	want := &Task{Name: "a-task", Dir: dir, Instruction: got.Instruction, Workdir: "/solution/work", AgentUser: "1000",
		VerifierUser: "root", BuildTimeout: 600 * second, AgentTimeout: 5 * second / 2, VerifierTimeout: 600 * second,
		Env: map[string]string{}, VerifierEnv: map[string]string{"A": "xherey", "B": "z", "C": "e"},
		SolutionEnv: map[string]string{}, CPUs: 2, Memory: 1536 << 20,
		Health: &Health{Command: "true", Interval: 5 * second, Timeout: 30 * second, StartInterval: 5 * second,
			Retries: 3}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !got.Solvable() {
		t.Error("it has a solution")
	}
	e := got.Evaluation("/solution/work")
	if d := cmp.Diff([]string{"container:/solution/work/a.txt", "container:/etc/cron.d/x"}, e.Deliverables); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"container:/tests", dir + "/tests", dir + "/solution"}, e.Hidden); d != "" {
		t.Error(d)
	}
}

func TestWhatIsNotDoneIsRefusedAllAtOnce(t *testing.T) {
	_, err := Read(folder(t, map[string]string{
		"task.toml": `version = "2.0"
artifacts = ["x"]
[[steps]]
name = "one"
[agent]
timeout_sec = -1
allowed_hosts = ["example.com"]
[verifier]
environment_mode = "separate"
env = { KEY = "${UNSET}" }
[environment]
gpus = 1
os = "windows"
colour = "red"
network_mode = "allowlist"
memory_mb = 0
workdir = "app"
mcp_servers = [{ name = "x" }]
`,
		"environment/docker-compose.yaml": "services: {}\n",
	}), false, host)
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{
		`schema version "2.0"`, `artifacts[0]: "x" is not the absolute path`, "steps is not supported", "agent.timeout_sec is -1",
		"a network policy of the agent", "environment_mode = separate", "KEY needs the variable UNSET",
		"environment.gpus",
		"environment.os = windows", "unknown key environment.colour", `network_mode "allowlist"`,
		"the memory of the environment", `workdir "app" is not absolute`, "environment.mcp_servers",
		"instruction.md is missing", "tests/test.sh is missing", "compose is not supported",
		"environment/Dockerfile and docker_image are both missing",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestUnknownKeysArePassedOverIfAsked(t *testing.T) {
	dir := folder(t, map[string]string{"task.toml": "new = 1\n[environment]\ndocker_image = \"x\"\n",
		"instruction.md": "x", Test: "x"})
	if _, err := Read(dir, true, host); err != nil {
		t.Error(err)
	}
	if _, err := Read(dir, false, host); err == nil {
		t.Error("an unknown key was passed over")
	}
	if found, err := Find(filepath.Dir(dir)); err != nil || len(found) != 1 || found[0] != dir {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := Find(t.TempDir()); err == nil {
		t.Error("an empty directory has tasks")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("version = \"1.0\"\n[environment]\nmemory = \"2G\"\n", "See /a/b.")
	f.Fuzz(func(t *testing.T, toml, text string) {
		_, _ = Read(folder(t, map[string]string{"task.toml": toml, "instruction.md": text, Test: "x"}), false, host)
	})
}
