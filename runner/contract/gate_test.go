package contract

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// workspace is a directory with a script under test, its test, a fixture and a link, and a contract outside it that
// protects the tests.
type workspace struct {
	t        *testing.T
	dir      string // the working directory
	contract string
	temp     string
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	top := t.TempDir()
	w := &workspace{t: t, dir: filepath.Join(top, "work"), contract: filepath.Join(top, "contract.yaml"),
		temp: filepath.Join(top, "temp")}
	w.sh(top, `mkdir -p temp work/tests/data work/src/deep
printf 'echo 41\n' >work/src/answer.sh
printf '#!/bin/sh\ntest "$(sh src/answer.sh)" = 42\n' >work/tests/run.sh; chmod 755 work/tests/run.sh
printf 'fixture' >work/tests/data/one
ln -s data/one work/tests/link
printf 'deep' >work/src/deep/a_test.txt
printf 'outside' >outside`)
	w.write()
	return w
}

func (w *workspace) write() {
	w.t.Helper()
	const text = "description: the answer is right\nchecks:\n- name: tests_pass\n  command: tests/run.sh\n- {name: " +
		"exists, command: test -f src/answer.sh}\nprotected: [tests, \"src/**/*_test.txt\"]\n"
	if err := os.WriteFile(w.contract, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workspace) sh(dir, script string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// state describes the workspace as ls and its content show it.
func (w *workspace) state() string {
	w.t.Helper()
	cmd := exec.Command("sh", "-c",
		`find . -printf '%p %y %m %l %n %U:%G\n' | grep -v '^\./* d.* [0-9]* [0-9]*:' ; find . -type d -printf '%p %m\n'; find . -type f -printf '%p %T@\n'; find . -type f | sort | xargs cksum`)
	cmd.Dir = w.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (w *workspace) prepare(opts PrepareOptions) *Gate {
	w.t.Helper()
	opts.Path, opts.Workdir, opts.TempDir = w.contract, w.dir, w.temp
	opts.Executor = Shell{Dir: w.dir}
	g, err := prepared(w.t.Context(), opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Release)
	if left, _ := os.ReadDir(w.temp); len(left) > 0 {
		w.t.Errorf("the snapshot has a name: %v", left)
	}
	return g
}

func prepared(ctx context.Context, opts PrepareOptions) (*Gate, error) {
	g, err := Open(opts)
	if err != nil {
		return nil, err
	}
	return g, g.Prepare(ctx)
}

func (w *workspace) settle(g *Gate) *schema.Contract {
	w.t.Helper()
	doc, err := g.Settle(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.valid(doc)
	return doc
}

// valid checks contract.json against its schema.
func (w *workspace) valid(doc *schema.Contract) {
	w.t.Helper()
	data, err := schema.Document(doc)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := schema.Validate(schema.ContractV0, data); err != nil {
		w.t.Errorf("%v\n%s", err, data)
	}
}

// A contract that was read before is not read again.
func TestAContractIsReadOnce(t *testing.T) {
	w := newWorkspace(t)
	read, err := contractfile.LoadValid(w.contract)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.contract); err != nil {
		t.Fatal(err)
	}
	g, err := Open(PrepareOptions{Path: w.contract, Workdir: w.dir, Read: read, Executor: Shell{Dir: w.dir}})
	if err != nil {
		t.Fatal(err)
	}
	if doc := g.Pending("not yet"); doc.Digest != read.Digest || len(doc.Results) != len(read.Contract.Checks) {
		t.Errorf("contract.json has digest %s and %d results", doc.Digest, len(doc.Results))
	}
}

func TestAnAgentThatDoesItsWorkPasses(t *testing.T) {
	w := newWorkspace(t)
	var events []string
	kept := members{}
	g := w.prepare(PrepareOptions{RunID: "run_1", Baseline: true, Options: Options{
		Output:  kept.open,
		Started: func(p Phase, c schema.Check) { events = append(events, string(p)+" start "+c.Name) },
		Completed: func(p Phase, c schema.Check, r schema.CheckResult) {
			events = append(events,
				string(p)+" end "+r.Name)
		},
	}})
	w.sh(w.dir, "echo echo 42 >src/answer.sh")
	before := w.state()
	doc := w.settle(g)
	if doc.Verdict != schema.VerdictPassed || doc.FileAfter != "unchanged" || doc.RunID != "run_1" ||
		len(doc.ProtectedChanges) != 0 {
		t.Errorf("document %+v", doc)
	}
	if doc.Baseline[0].Passed || !doc.Baseline[1].Passed || *doc.Results[0].GatesNothing ||
		!*doc.Results[1].GatesNothing {
		t.Errorf("baseline %+v, results %+v", doc.Baseline, doc.Results)
	}
	if d := cmp.Diff([]string{"check exists proves nothing: it already passed before the agent started"},
		doc.Reasons); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
	want := []string{"baseline start tests_pass", "baseline end tests_pass", "baseline start exists",
		"baseline end exists",
		"final start tests_pass", "final end tests_pass", "final start exists", "final end exists"}
	if d := cmp.Diff(want, events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, w.state()); d != "" {
		t.Errorf("settling changed the workspace (-before +after):\n%s", d)
	}
	if len(kept) != 2 {
		t.Errorf("members %v", kept)
	}
}

func TestAnAgentThatDoesNothingFails(t *testing.T) {
	w := newWorkspace(t)
	doc := w.settle(w.prepare(PrepareOptions{}))
	if doc.Verdict != schema.VerdictFailed || doc.Baseline != nil || doc.Results[0].GatesNothing != nil ||
		!doc.Results[1].Passed {
		t.Errorf("document %+v", doc)
	}
	digest, err := contractfile.Digest(w.contract)
	if err != nil || doc.Digest != digest {
		t.Errorf("digest %s", doc.Digest)
	}
}

func TestAnAgentThatEditsTheContract(t *testing.T) {
	for name, c := range map[string]struct{ script, after string }{
		"to something that passes": {`printf 'checks: [{name: a, command: "test 1"}]' >contract.yaml`, "changed"},
		"away":                     {"rm contract.yaml", "missing"},
		"into a directory":         {"rm contract.yaml; mkdir contract.yaml", "unreadable"},
		"into a FIFO":              {"rm contract.yaml; mkfifo contract.yaml", "unreadable"},
		"into something endless":   {"ln -sf /dev/zero contract.yaml", "unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			g := w.prepare(PrepareOptions{})
			w.sh(filepath.Dir(w.contract), c.script)
			doc := w.settle(g)
			if doc.Verdict != schema.VerdictFailed || len(doc.Results) != 2 || doc.FileAfter != c.after {
				t.Errorf("verdict %s of %d checks, file %s", doc.Verdict, len(doc.Results), doc.FileAfter)
			}
			if !strings.Contains(strings.Join(doc.Reasons, "\n"), "contract file was edited") {
				t.Errorf("reasons %q", doc.Reasons)
			}
		})
	}
}

func TestTheBaselineLeavesProtectedPathsAlone(t *testing.T) {
	w := newWorkspace(t)
	text, err := os.ReadFile(w.contract)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("tests/run.sh"), []byte("echo spoilt >tests/data/one; tests/run.sh"), 1)
	if err := os.WriteFile(w.contract, text, 0o644); err != nil {
		t.Fatal(err)
	}
	g := w.prepare(PrepareOptions{Baseline: true})
	if data, _ := os.ReadFile(filepath.Join(w.dir, "tests/data/one")); string(data) != "fixture" {
		t.Errorf("the agent would find %q", data)
	}
	doc := w.settle(g)
	if c := doc.ProtectedChanges; len(c) != 2 || c[0].During != "baseline" || c[1].During != "check" ||
		c[1].Check != "tests_pass" {
		t.Errorf("changes %+v", c)
	}
}

func TestAnAgentThatNeverRanIsInconclusive(t *testing.T) {
	w := newWorkspace(t)
	g := w.prepare(PrepareOptions{Baseline: true})
	pending := g.Pending("the runner ended")
	w.valid(pending)
	if pending.Verdict != schema.VerdictInconclusive || pending.FileAfter != "unknown" ||
		pending.Reasons[0] != "the runner ended" || len(pending.Baseline) != 2 {
		t.Errorf("pending %+v", pending)
	}
	doc, err := g.Settle(t.Context(), "the agent never ran: the command was not found")
	if err != nil || doc.Verdict != schema.VerdictInconclusive || doc.Results[0].Ran ||
		!strings.Contains(doc.Reasons[0], "never ran: the command was not found") {
		t.Errorf("%+v, %v", doc, err)
	}
	w.valid(doc)
}

// indexes records the numbers that checks get.
type indexes struct{ seen []int }

func (x *indexes) Run(_ context.Context, _ schema.Check, index int, _ io.Writer) (ExitStatus, error) {
	x.seen = append(x.seen, index)
	return ExitStatus{}, nil
}

func TestEveryCheckOfAGateHasItsOwnIndex(t *testing.T) {
	w := newWorkspace(t)
	x := &indexes{}
	g, err := prepared(t.Context(), PrepareOptions{Path: w.contract, Workdir: w.dir, Executor: x, Baseline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	w.settle(g)
	if d := cmp.Diff([]int{1, 2, 3, 4}, x.seen); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPrepareRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text, script, says string
	}{
		"a contract with problems": {"description: d\nchecks: [{name: a, command: go version}, " +
			"{name: a, command: x}]", ":", "proves that a tool is installed"},
		"a contract that is not one": {"chekcs: []", ":", "unknown key"},
		"a protected FIFO": {"description: d\nchecks: [{name: a, command: x}]\nprotected: [pipe]",
			"mkfifo pipe", "pipe is not a file, a directory or a link"},
		"protected paths over the cap": {"description: d\nchecks: [{name: a, command: x}]\nprotected: [big]",
			"truncate -s 257M big", "more than 268435456 bytes"},
		"a working directory missing": {"description: d\nchecks: [{name: a, command: x}]\nprotected: [big]",
			"rmdir ../work 2>/dev/null || rm -r ../work", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			if err := os.WriteFile(w.contract, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			w.sh(w.dir, c.script)
			_, err := prepared(t.Context(),
				PrepareOptions{Path: w.contract, Workdir: w.dir, TempDir: w.temp, Executor: Shell{Dir: w.dir}})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if left, _ := os.ReadDir(w.temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if name == "a contract with problems" {
				var invalid *contractfile.InvalidError
				if !errors.As(err, &invalid) || len(invalid.Problems) != 2 {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		agent    int
		verdict  string
		signaled bool
		want     int
	}{
		{0, "passed", false, 0}, {0, "failed", false, 122}, {0, "inconclusive", false, 123}, {3, "failed", false, 3},
		{137, "inconclusive", false, 137}, {1, "passed", false, 1},
		{137, "failed", true, 122}, {137, "inconclusive", true, 137}, {137, "passed", true, 137},
		{137, "failed", false, 137},
	} {
		if got := ExitCode(c.agent, c.verdict, c.signaled); got != c.want {
			t.Errorf("agent %d, %s, %t: %d, want %d", c.agent, c.verdict, c.signaled, got, c.want)
		}
	}
}
