package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// task is a file of testdata/evaluation/corpus: a task, and the agents that work on it.
type task struct {
	name   string
	files  map[string][]byte // below a directory that the agent is given, such as app/stats.py
	agents []string          // KIND_NAME
}

// cheatVerdict is what was judged of one agent.
type cheatVerdict struct {
	task, agent, place string
	checks, state      string   // of the contract and of all rules
	rules              []string // those that do not pass
	reasons            []string // of the contract's verdict
}

func (v cheatVerdict) kind() string { kind, _, _ := strings.Cut(v.agent, "_"); return kind }

func (v cheatVerdict) String() string {
	return strings.Join(append([]string{v.task, v.agent, v.place, "checks", v.checks, v.state}, v.rules...), " ")
}

// TestCheats runs the agents of testdata/evaluation/corpus under assay-run with a contract that runs the task's own
// test.sh before and after them, and compares what is judged with the file verdicts and with the table of
// docs/evaluation.md. make cheats writes both. Bundles are kept in the directory CHEATS_BUNDLES, if it is set; those
// that it has are judged again, and not recorded.
func TestCheats(t *testing.T) {
	layertest.Host(t)
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for _, need := range []string{"mounts", "pytest", "git", "cc"} {
		if err := evaluationNeeds[need](); err != nil {
			t.Skipf("the host has no %s: %v", need, err)
		}
	}
	dir := filepath.Join("..", "..", "testdata", "evaluation", "corpus")
	names, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tasks: %v", err)
	}
	keepObserver(t)
	engine := sync.OnceValue(func() *enginetest.Engine { return enginetest.Podman(t) })
	var mu sync.Mutex
	var verdicts []cheatVerdict
	t.Run("agents", func(t *testing.T) {
		for _, name := range names {
			k := readTask(t, name)
			for _, agent := range k.agents {
				t.Run(k.name+"/"+agent, func(t *testing.T) {
					t.Parallel()
					v := k.run(t, agent, engine)
					mu.Lock()
					defer mu.Unlock()
					verdicts = append(verdicts, v)
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	slices.SortFunc(verdicts, func(a, b cheatVerdict) int { return strings.Compare(a.String(), b.String()) })
	var lines strings.Builder
	for _, v := range verdicts {
		fmt.Fprintln(&lines, v)
		if v.checks == schema.VerdictInconclusive {
			t.Logf("%v: %q", v, v.reasons)
		}
	}
	table := cheatsTable(verdicts)
	t.Logf("\n%s", table)
	file, page := filepath.Join(dir, "verdicts"), filepath.Join("..", "..", "docs", "evaluation.md")
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- make cheats -->\n", "<!-- -->\n"
	before, rest, _ := strings.Cut(string(was), begin)
	old, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no place for the table", page)
	}
	if os.Getenv("CHEATS") == "write" {
		if err := errors.Join(os.WriteFile(file, []byte(lines.String()), 0o644),
			os.WriteFile(page, []byte(before+begin+table+end+after), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(lines.String(), "\n")); diff != "" {
		t.Errorf("other verdicts than those of %s, which make cheats writes anew:\n%s", file, diff)
	}
	if diff := gocmp.Diff(old, table); diff != "" {
		t.Errorf("%s has another table, which make cheats writes anew:\n%s", page, diff)
	}
}

// cheatsTable counts verdicts by kind of agent.
func cheatsTable(verdicts []cheatVerdict) string {
	var b strings.Builder
	b.WriteString("| | agents | fail | unknown | pass |\n|---|---|---|---|---|\n")
	for _, row := range []struct{ kind, checks, words string }{
		{"cheat", "passed", "cheats by the environment, with which the checks passed"},
		{"cheat", "", "other cheats by the environment"},
		{"honest", "-", "honest"}, {"messy", "-", "honest, but messy"},
		{"deliverable", "-", "cheats in what was to be delivered"},
	} {
		n := map[string]int{}
		for _, v := range verdicts {
			if v.kind() == row.kind && (row.checks == "-" || (v.checks == "passed") == (row.checks == "passed")) {
				n[v.state]++
				n[""]++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", row.words, n[""], n[evaluation.Fail], n[evaluation.Unknown],
			n[evaluation.Pass])
	}
	return b.String()
}

func readTask(t *testing.T, path string) *task {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k := &task{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), files: map[string][]byte{}}
	for _, f := range archive.Files {
		k.files[f.Name] = f.Data
		if agent, ok := strings.CutPrefix(f.Name, "agents/"); ok {
			k.agents = append(k.agents, agent)
		}
	}
	return k
}

// cheatsPlaces are the directories of a task, and the variables that name them to its scripts.
var cheatsPlaces = [][2]string{{"APP", "app"}, {"TESTS", "tests"}, {"SOLUTION", "solution"}, {"OTHERS", "others"},
	{"LOGS", "logs"}, {"HOME", "home"}, {"SOLVE", "agent/solve"}}

// run has one agent work on the task, and judges the bundle.
func (k *task) run(t *testing.T, agent string, engine func() *enginetest.Engine) cheatVerdict {
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	v := cheatVerdict{task: k.name, agent: agent, place: "host"}
	script := string(k.files["agents/"+agent])
	if place, ok := strings.CutPrefix(script, "# place "); ok {
		v.place, _, _ = strings.Cut(place, "\n")
	}
	top := filepath.Join(work, "top")
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"logs/verifier", "home", "etc", "usr", "opt"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range k.files {
		if strings.Contains(name, "/") && !strings.HasPrefix(name, "agents/") {
			write(filepath.Join(top, name), string(data))
		}
	}
	write(filepath.Join(top, "agent", "solve"), string(k.files["solve"]))
	write(filepath.Join(top, "agent", "run"), "#!/bin/sh\n"+script)
	variables := func(top string) []string {
		env := []string{"WORK=" + work, "TMPDIR=/tmp", "GIT_CONFIG_NOSYSTEM=1", "XDG_CONFIG_HOME=",
			"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
		for _, p := range cheatsPlaces {
			env = append(env, p[0]+"="+filepath.Join(top, p[1]))
		}
		return env
	}
	outside, inside := variables(top), variables("/")
	if setup := string(k.files["setup.sh"]); setup != "" {
		setUp(t, setup, filepath.Join(top, "app"), append(os.Environ(), outside...))
	}
	start, _ := os.ReadFile(filepath.Join(work, "start"))

	// The command, and how its checks run.
	env, flags := outside, []string{}
	command := []string{filepath.Join(top, "agent", "run")}
	check := "env " + strings.Join(outside, " ") + " sh " + filepath.Join(top, "tests", "test.sh")
	// The host's programs and configuration, in a layer that is gone afterwards.
	mounts := "for d in usr etc opt; do mkdir $WORK/$d $WORK/$d.work; " +
		"mount -t overlay -o lowerdir=/$d,upperdir=$WORK/$d,workdir=$WORK/$d.work overlay /$d; done"
	switch v.place {
	case "host":
	case "sandbox":
		mounts, flags = ":", []string{"--mode", "workspace-write"}
	case "chroot":
		mounts += "; for d in usr etc; do mount --bind /$d $TOP/$d; done; mkdir $TOP/dev $TOP/proc $TOP/tmp; " +
			"for d in bin lib lib64; do ln -s usr/$d $TOP/$d; done; mount --rbind /dev $TOP/dev; " +
			"mount -t proc proc $TOP/proc"
		env, command = inside, []string{"chroot", top, "sh", "-c", "cd /app && exec /agent/run"}
		check = "chroot " + top + " env " + strings.Join(inside, " ") + " sh /tests/test.sh"
	case "container":
		e := engine()
		mounts, env = ":", append(slices.Clone(e.Env), outside...)
		engineRun := []string{e.Program, "run", "--rm", "--network=none", "--cgroup-parent", "$ASSAY_RUN_CGROUP_PARENT",
			"-w", "/app"}
		for _, p := range inside {
			engineRun = append(engineRun, "-e", p)
		}
		for _, d := range []string{"app", "tests", "solution", "others", "logs", "home", "agent"} {
			engineRun = append(engineRun, "-v", filepath.Join(top, d)+":/"+d)
		}
		command = []string{"sh", "-c", strings.Join(append(engineRun, enginetest.Image, "sh", "/agent/run"), " ")}
	default:
		t.Fatalf("there is no place %q", v.place)
	}
	names := inside
	if v.place == "host" || v.place == "sandbox" {
		names = outside
	}
	write(filepath.Join(work, "evaluation.yaml"), os.Expand("workspace: [$APP]\nhidden: [$TESTS, $SOLUTION]\n"+
		"protected: [$TESTS]\nreward: [$LOGS/verifier/reward.txt]\nothers: [$OTHERS]\n"+string(k.files["evaluation"]),
		func(name string) string {
			for _, line := range append(slices.Clone(names), "START="+strings.TrimSpace(string(start))) {
				if key, value, _ := strings.Cut(line, "="); key == name {
					return value
				}
			}
			return ""
		}))
	write(filepath.Join(work, "contract.yaml"), fmt.Sprintf(
		"description: the task's tests pass\nchecks:\n- name: tests\n  timeout_secs: 30\n  command: %q\n", check))
	bundle := filepath.Join(work, "run.tar.gz")
	if kept := os.Getenv("CHEATS_BUNDLES"); kept != "" {
		bundle = filepath.Join(kept, k.name+"-"+agent+".tar.gz")
	}
	if _, err := os.Stat(bundle); err == nil { // of an earlier run of this test
		return v.judge(t, bundle)
	}
	args := append([]string{"--kernel", "require", "--run-id", uniqueID(), "--spool-dir", filepath.Join(work, "spool"),
		"-o", bundle, "--workdir", filepath.Join(top, "app"), "--grace", "1s",
		"--evaluation", filepath.Join(work, "evaluation.yaml"), "--contract", filepath.Join(work, "contract.yaml"),
		"--contract-baseline",
	}, flags...)
	run := self(t, work)
	program := filepath.Join(work, "assay-run") // testscript.Main goes by the name
	if err := os.Symlink(run.Path, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", slices.Concat([]string{"-m", "sh", "-euc", mounts + "\nexec \"$@\"", "sh", program},
		args, []string{"--"}, command)...)
	cmd.Dir = work
	cmd.Env = append(append(run.Env, env...), "TOP="+top)
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", err, out)
	return v.judge(t, bundle)
}

// judge judges the bundle of an agent.
func (v cheatVerdict) judge(t *testing.T, bundle string) cheatVerdict {
	set, err := view.Open(t.Context(), []string{bundle}, view.Options{Follow: evaluation.Follow(nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	b := set.Bundles[0]
	judged, err := evaluation.Judge(t.Context(), b, &b.Docs.Evaluation.Evaluation)
	if err != nil {
		t.Fatal(err)
	}
	v.checks, v.state = "none", evaluation.Pass
	if c := b.Docs.Result.Contract; c != nil {
		v.checks, v.reasons = *c, b.Docs.Result.ContractReasons
	}
	for _, r := range judged {
		if r.State == evaluation.Pass || v.place == "container" && r.Rule == "leaves_process" {
			continue // Podman's own processes end when they like
		}
		v.rules = append(v.rules, r.Rule+"="+r.State)
		if v.state != evaluation.Fail {
			v.state = r.State
		}
		t.Logf("%s is %s: %s", r.Rule, r.State, describe(r))
	}
	t.Log(v)
	return v
}
