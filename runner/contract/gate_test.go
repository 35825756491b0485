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
)

// workspace is a directory with a script under test, its test, a fixture and
// a link, and a contract beside it that protects the tests.
type workspace struct {
	t        *testing.T
	dir      string // the working directory
	contract string
	temp     string
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	top := t.TempDir()
	w := &workspace{t: t, dir: filepath.Join(top, "work"), contract: filepath.Join(top, "contract.yaml"), temp: filepath.Join(top, "temp")}
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
	const text = "description: the answer is right\nchecks:\n- name: tests_pass\n  command: tests/run.sh\n- {name: exists, command: test -f src/answer.sh}\nprotected: [tests, \"src/**/*_test.txt\"]\n"
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

// state is the workspace as ls and the content tell it.
func (w *workspace) state() string {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", `find . -printf '%p %y %m %l %n %U:%G\n' | grep -v '^\./* d.* [0-9]* [0-9]*:' ; find . -type d -printf '%p %m\n'; find . -type f -printf '%p %T@\n'; find . -type f | sort | xargs cksum`)
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
	g, err := Prepare(w.t.Context(), opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Release)
	if left, _ := os.ReadDir(w.temp); len(left) > 0 {
		w.t.Errorf("the snapshot has a name: %v", left)
	}
	return g
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

func TestAnAgentThatDoesItsWorkPasses(t *testing.T) {
	w := newWorkspace(t)
	var events []string
	kept := members{}
	g := w.prepare(PrepareOptions{RunID: "run_1", Baseline: true, Options: Options{
		Output:    kept.open,
		Started:   func(p Phase, c Check) { events = append(events, string(p)+" start "+c.Name) },
		Completed: func(p Phase, c Check, r schema.CheckResult) { events = append(events, string(p)+" end "+r.Name) },
	}})
	w.sh(w.dir, "echo echo 42 >src/answer.sh")
	before := w.state()
	doc := w.settle(g)
	if doc.Verdict != schema.VerdictPassed || doc.FileAfter != "unchanged" || doc.RunID != "run_1" || len(doc.ProtectedChanges) != 0 {
		t.Errorf("document %+v", doc)
	}
	if doc.Baseline[0].Passed || !doc.Baseline[1].Passed || *doc.Results[0].GatesNothing || !*doc.Results[1].GatesNothing {
		t.Errorf("baseline %+v, results %+v", doc.Baseline, doc.Results)
	}
	if d := cmp.Diff([]string{"check exists gates nothing: it had passed before the agent started"}, doc.Reasons); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
	want := []string{"baseline start tests_pass", "baseline end tests_pass", "baseline start exists", "baseline end exists",
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
	if doc.Verdict != schema.VerdictFailed || doc.Baseline != nil || doc.Results[0].GatesNothing != nil || !doc.Results[1].Passed {
		t.Errorf("document %+v", doc)
	}
	data, err := os.ReadFile(w.contract)
	if err != nil || doc.Digest != Digest(data) {
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

// Whatever an agent does to a protected path, it is back as it was, and
// nothing outside is written through it.
func TestAnAgentThatEditsProtectedPaths(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"nothing":                        {":", nil},
		"an edited test":                 {"echo true >tests/run.sh", []string{"modified tests/run.sh"}},
		"an edited test of equal size":   {"printf FIXTURE >tests/data/one", []string{"modified tests/data/one"}},
		"a deleted test":                 {"rm tests/run.sh", []string{"deleted tests/run.sh"}},
		"all tests deleted":              {"rm -r tests", []string{"deleted tests", "deleted tests/data", "deleted tests/data/one", "deleted tests/link", "deleted tests/run.sh"}},
		"an added test":                  {"echo x >tests/data/two", []string{"added tests/data/two"}},
		"an added folder":                {"mkdir -p tests/new/sub; echo x >tests/new/sub/x", []string{"added tests/new"}},
		"an added link":                  {"ln -s / tests/root", []string{"added tests/root"}},
		"an added match of a glob":       {"echo x >src/deep/b_test.txt", []string{"added src/deep/b_test.txt"}},
		"permissions of a file":          {"chmod 000 tests/run.sh", []string{"permissions tests/run.sh"}},
		"setuid":                         {"chmod 4755 tests/run.sh", []string{"permissions tests/run.sh"}},
		"permissions of a folder":        {"chmod 000 tests/data", []string{"permissions tests/data"}},
		"a folder hidden and edited":     {"echo x >tests/data/one; chmod 000 tests/data tests", []string{"modified tests/data/one", "permissions tests", "permissions tests/data"}},
		"a file for a folder":            {"rm -r tests/data; echo x >tests/data", []string{"deleted tests/data/one", "replaced tests/data"}},
		"a folder for a file":            {"rm tests/run.sh; mkdir -p tests/run.sh/x/y", []string{"replaced tests/run.sh"}},
		"a FIFO for a file":              {"rm tests/run.sh; mkfifo tests/run.sh", []string{"replaced tests/run.sh"}},
		"a link for a file":              {"rm tests/run.sh; ln -s /bin/true tests/run.sh", []string{"replaced tests/run.sh"}},
		"a link to a file outside":       {"rm tests/run.sh; ln -s ../../outside tests/run.sh", []string{"replaced tests/run.sh"}},
		"a hard link to a file outside":  {"ln -f ../outside tests/run.sh", []string{"linked tests/run.sh"}},
		"a hard link of equal content":   {"cp -p tests/run.sh src/copy; ln -f src/copy tests/run.sh", []string{"linked tests/run.sh"}},
		"another name for a test":        {"ln tests/run.sh src/other", []string{"linked tests/run.sh"}},
		"a link for a folder":            {"mv tests/data src/moved; ln -s ../src/moved tests/data", []string{"deleted tests/data/one", "replaced tests/data"}},
		"a link to a folder outside":     {"rm -r tests; ln -s ../temp tests", []string{"deleted tests/data", "deleted tests/data/one", "deleted tests/link", "deleted tests/run.sh", "replaced tests"}},
		"a link moved elsewhere":         {"ln -sf run.sh tests/link", []string{"modified tests/link"}},
		"a file for a link":              {"rm tests/link; echo x >tests/link", []string{"replaced tests/link"}},
		"a parent replaced by a link":    {"mv src/deep src/far; ln -s far src/deep", []string{"added src/far/a_test.txt", "deleted src/deep/a_test.txt", "replaced src/deep"}},
		"a parent deleted":               {"rm -r src/deep", []string{"deleted src/deep/a_test.txt"}},
		"a test rewritten as it was":     {"cp -p tests/run.sh x; mv x tests/run.sh", nil},
		"changes to what is unprotected": {"echo x >src/deep/other; echo y >README", nil},
		"another owner":                  {"chown 12345 tests/run.sh", []string{"permissions tests/run.sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			if strings.HasPrefix(c.script, "chown") && os.Getuid() != 0 {
				t.Skip("only root can give a file away")
			}
			outside := filepath.Join(filepath.Dir(w.dir), "outside")
			g := w.prepare(PrepareOptions{})
			keep := func() string { // the protected part
				var lines []string
				for line := range strings.SplitSeq(w.state(), "\n") {
					if strings.Contains(line, "./tests") || strings.Contains(line, "_test.txt") {
						lines = append(lines, line)
					}
				}
				return strings.Join(lines, "\n")
			}
			before := keep()
			w.sh(w.dir, c.script)
			doc := w.settle(g)
			var got []string
			for _, ch := range doc.ProtectedChanges {
				got = append(got, ch.Change+" "+ch.Path)
				if !ch.Restored || ch.During != "agent" {
					t.Errorf("change %+v", ch)
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, keep()); d != "" {
				t.Errorf("protected paths (-at the start +now):\n%s", d)
			}
			if doc.Verdict != schema.VerdictFailed { // the answer is still 41
				t.Errorf("verdict %s, reasons %q", doc.Verdict, doc.Reasons)
			}
			if text, err := os.ReadFile(outside); string(text) != "outside" {
				t.Errorf("the file outside holds %q, %v", text, err)
			}
			if left, _ := os.ReadDir(w.temp); len(left) > 0 {
				t.Errorf("written outside: %v", left)
			}
			if again := g.snapshot.Restore("agent"); len(again.Changes) > 0 {
				t.Errorf("not all was restored: %+v", again)
			}
		})
	}
}

func TestWhatCannotBeRestoredMakesTheVerdictInconclusive(t *testing.T) {
	t.Run("a working directory that another has replaced", func(t *testing.T) {
		w := newWorkspace(t)
		g := w.prepare(PrepareOptions{})
		w.sh(filepath.Dir(w.dir), "mv work elsewhere; ln -s temp work")
		doc := w.settle(g)
		if doc.Verdict != schema.VerdictInconclusive || len(doc.ProtectedChanges) != 1 || doc.ProtectedChanges[0].Restored {
			t.Errorf("verdict %s, changes %+v", doc.Verdict, doc.ProtectedChanges)
		}
		if left, _ := os.ReadDir(w.temp); len(left) > 0 {
			t.Errorf("written through the link: %v", left)
		}
	})
	t.Run("a snapshot that was tampered with", func(t *testing.T) {
		w := newWorkspace(t)
		g := w.prepare(PrepareOptions{})
		if _, err := g.snapshot.blob.WriteAt(bytes.Repeat([]byte("x"), 50), 0); err != nil {
			t.Fatal(err)
		}
		w.sh(w.dir, "echo true >tests/run.sh; echo echo 42 >src/answer.sh")
		doc := w.settle(g)
		if doc.Verdict != schema.VerdictInconclusive || !strings.Contains(doc.ProtectedChanges[0].Error, "tampered") {
			t.Errorf("verdict %s, changes %+v", doc.Verdict, doc.ProtectedChanges)
		}
	})
	t.Run("a file that cannot be changed", func(t *testing.T) {
		w := newWorkspace(t)
		if err := exec.Command("chattr", "+i", filepath.Join(w.dir, "tests/link")).Run(); err == nil {
			t.Fatal("links cannot be immutable")
		}
		g := w.prepare(PrepareOptions{})
		w.sh(w.dir, "echo true >tests/run.sh")
		file := filepath.Join(w.dir, "tests/run.sh")
		if out, err := exec.Command("chattr", "+i", file).CombinedOutput(); err != nil {
			t.Skipf("chattr +i: %s", out)
		}
		defer exec.Command("chattr", "-i", file).Run()
		doc := w.settle(g)
		if doc.Verdict != schema.VerdictInconclusive || doc.ProtectedChanges[0].Restored {
			t.Errorf("verdict %s, changes %+v", doc.Verdict, doc.ProtectedChanges)
		}
	})
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
	if len(doc.ProtectedChanges) != 1 || doc.ProtectedChanges[0].During != "baseline" {
		t.Errorf("changes %+v", doc.ProtectedChanges)
	}
}

func TestAnAgentThatNeverRanIsInconclusive(t *testing.T) {
	w := newWorkspace(t)
	g := w.prepare(PrepareOptions{Baseline: true})
	doc, err := g.Settle(t.Context(), "the command was not found")
	if err != nil || doc.Verdict != schema.VerdictInconclusive || doc.Results[0].Ran || !strings.Contains(doc.Reasons[0], "never ran: the command was not found") {
		t.Errorf("%+v, %v", doc, err)
	}
	w.valid(doc)
}

// indexes notes the numbers that checks are run under.
type indexes struct{ seen []int }

func (x *indexes) Run(_ context.Context, _ Check, index int, _ io.Writer) (ExitStatus, error) {
	x.seen = append(x.seen, index)
	return ExitStatus{}, nil
}

func TestEveryCheckOfAGateHasItsOwnIndex(t *testing.T) {
	w := newWorkspace(t)
	x := &indexes{}
	g, err := Prepare(t.Context(), PrepareOptions{Path: w.contract, Workdir: w.dir, Executor: x, Baseline: true})
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
		"a contract with problems":     {"checks: [{name: a, command: go version}, {name: a, command: x}]", ":", "proves that a tool is installed"},
		"a contract that is not one":   {"chekcs: []", ":", "unknown key"},
		"a protected FIFO":             {"checks: [{name: a, command: x}]\nprotected: [pipe]", "mkfifo pipe", "pipe is neither a file"},
		"protected paths over the cap": {"checks: [{name: a, command: x}]\nprotected: [big]", "truncate -s 257M big", "more than 268435456 bytes"},
		"a working directory missing":  {"checks: [{name: a, command: x}]\nprotected: [big]", "rmdir ../work 2>/dev/null || rm -r ../work", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			if err := os.WriteFile(w.contract, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			w.sh(w.dir, c.script)
			_, err := Prepare(t.Context(), PrepareOptions{Path: w.contract, Workdir: w.dir, TempDir: w.temp, Executor: Shell{Dir: w.dir}})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if left, _ := os.ReadDir(w.temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if name == "a contract with problems" {
				var invalid *InvalidError
				if !errors.As(err, &invalid) || len(invalid.Problems) != 2 {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		agent   int
		verdict string
		want    int
	}{{0, "passed", 0}, {0, "failed", 122}, {0, "inconclusive", 123}, {3, "failed", 3}, {137, "inconclusive", 137}, {1, "passed", 1}} {
		if got := ExitCode(c.agent, c.verdict); got != c.want {
			t.Errorf("agent %d, %s: %d, want %d", c.agent, c.verdict, got, c.want)
		}
	}
}
