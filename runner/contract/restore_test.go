package contract

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// Whatever an agent does to a protected path, it is restored, and nothing outside is written through it.
func TestAnAgentThatEditsProtectedPaths(t *testing.T) {
	layertest.Host(t)
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"nothing":                      {":", nil},
		"an edited test":               {"echo true >tests/run.sh", []string{"modified tests/run.sh"}},
		"an edited test of equal size": {"printf FIXTURE >tests/data/one", []string{"modified tests/data/one"}},
		"a deleted test":               {"rm tests/run.sh", []string{"deleted tests/run.sh"}},
		"all tests deleted": {"rm -r tests",
			[]string{"deleted tests", "deleted tests/data", "deleted tests/data/one", "deleted tests/link",
				"deleted tests/run.sh"}},
		"an added test": {"echo x >tests/data/two", []string{"added tests/data/two"}},
		"an added folder": {"mkdir -p tests/new/sub; echo x >tests/new/sub/x",
			[]string{"added tests/new"}},
		"an added folder that is closed": {"mkdir -p tests/x/y/z; echo x >tests/x/y/f; chmod 000 tests/x/y tests/x",
			[]string{"added tests/x"}},
		"an added link":            {"ln -s / tests/root", []string{"added tests/root"}},
		"an added match of a glob": {"echo x >src/deep/b_test.txt", []string{"added src/deep/b_test.txt"}},
		"permissions of a file":    {"chmod 000 tests/run.sh", []string{"permissions tests/run.sh"}},
		"setuid":                   {"chmod 4755 tests/run.sh", []string{"permissions tests/run.sh"}},
		"permissions of a folder":  {"chmod 000 tests/data", []string{"permissions tests/data"}},
		"a folder hidden and edited": {"echo x >tests/data/one; chmod 000 tests/data tests",
			[]string{"modified tests/data/one", "permissions tests", "permissions tests/data"}},
		"a file for a folder": {"rm -r tests/data; echo x >tests/data",
			[]string{"deleted tests/data/one", "replaced tests/data"}},
		"a folder for a file": {"rm tests/run.sh; mkdir -p tests/run.sh/x/y",
			[]string{"replaced tests/run.sh"}},
		"a FIFO for a file": {"rm tests/run.sh; mkfifo tests/run.sh", []string{"replaced tests/run.sh"}},
		"a link for a file": {"rm tests/run.sh; ln -s /bin/true tests/run.sh",
			[]string{"replaced tests/run.sh"}},
		"a link to a file outside": {"rm tests/run.sh; ln -s ../../outside tests/run.sh",
			[]string{"replaced tests/run.sh"}},
		"a hard link to a file outside": {"ln -f ../outside tests/run.sh", []string{"linked tests/run.sh"}},
		"a hard link of equal content": {"cp -p tests/run.sh src/copy; ln -f src/copy tests/run.sh",
			[]string{"linked tests/run.sh"}},
		"another name for a test": {"ln tests/run.sh src/other", []string{"linked tests/run.sh"}},
		"a link for a folder": {"mv tests/data src/moved; ln -s ../src/moved tests/data",
			[]string{"deleted tests/data/one", "replaced tests/data"}},
		"a link to a folder outside": {"rm -r tests; ln -s ../temp tests",
			[]string{"deleted tests/data", "deleted tests/data/one", "deleted tests/link", "deleted tests/run.sh",
				"replaced tests"}},
		"a link moved elsewhere": {"ln -sf run.sh tests/link", []string{"modified tests/link"}},
		"a file for a link":      {"rm tests/link; echo x >tests/link", []string{"replaced tests/link"}},
		"a parent replaced by a link": {"mv src/deep src/far; ln -s far src/deep",
			[]string{"added src/far/a_test.txt", "deleted src/deep/a_test.txt", "replaced src/deep"}},
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
			if again := g.snapshots[0].Restore("agent", ""); len(again.Changes) > 0 {
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
		if doc.Verdict != schema.VerdictInconclusive || len(doc.ProtectedChanges) != 1 ||
			doc.ProtectedChanges[0].Restored {
			t.Errorf("verdict %s, changes %+v", doc.Verdict, doc.ProtectedChanges)
		}
		if left, _ := os.ReadDir(w.temp); len(left) > 0 {
			t.Errorf("written through the link: %v", left)
		}
	})
	t.Run("a snapshot that was tampered with", func(t *testing.T) {
		w := newWorkspace(t)
		g := w.prepare(PrepareOptions{})
		if _, err := g.snapshots[0].blob.WriteAt(bytes.Repeat([]byte("x"), 50), 0); err != nil {
			t.Fatal(err)
		}
		w.sh(w.dir, "echo true >tests/run.sh; echo echo 42 >src/answer.sh")
		doc := w.settle(g)
		if doc.Verdict != schema.VerdictInconclusive || !strings.Contains(doc.ProtectedChanges[0].Error, "tampered") {
			t.Errorf("verdict %s, changes %+v", doc.Verdict, doc.ProtectedChanges)
		}
	})
}

// An agent that makes a protected path immutable has failed, whatever the checks say: the verdict must not become
// inconclusive. The change is undone nevertheless.
func TestAnImmutablePathIsTheAgentsFailure(t *testing.T) {
	for name, c := range map[string]struct{ script, path, change string }{
		"a changed file":      {"echo true >tests/run.sh; chattr +i tests/run.sh", "tests/run.sh", "modified"},
		"an append-only file": {"echo true >>tests/run.sh; chattr +a tests/run.sh", "tests/run.sh", "modified"},
		"a directory":         {"rm tests/data/one; chattr +i tests/data", "tests/data", "deleted"},
		"an added file": {"mkdir tests/new; echo >tests/new/x; chattr +i tests/new/x tests/new", "tests/new",
			"added"},
		"the directory of work": {"mv tests gone; chattr +i .", ".", "deleted"},
		"a directory above":     {"mv src/deep src/other; chattr +i src", "src", "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			if out, err := exec.Command("sh", "-c", "chattr +i "+w.temp+" && chattr -i "+
				w.temp).CombinedOutput(); err != nil {
				t.Skipf("chattr +i: %s", out)
			}
			g := w.prepare(PrepareOptions{})
			defer exec.Command("chattr", "-R", "-ia", w.dir).Run()
			w.sh(w.dir, "echo echo 42 >src/answer.sh;"+c.script)
			doc := w.settle(g)
			found := map[string]bool{}
			for _, change := range doc.ProtectedChanges {
				if !change.Restored {
					t.Errorf("not restored: %+v", change)
				}
				found[change.Change] = true
				found[change.Change+" "+change.Path] = true
			}
			if doc.Verdict != schema.VerdictFailed || !doc.Results[0].Passed || !found["immutable "+c.path] ||
				!found[c.change] {
				t.Errorf("verdict %s, changes %+v, reasons %q", doc.Verdict, doc.ProtectedChanges, doc.Reasons)
			}
			if again := g.snapshots[0].Restore("agent", ""); len(again.Changes) > 0 {
				t.Errorf("not all was restored: %+v", again)
			}
		})
	}
}

// A check rewrites what the next one tests. The next one finds it restored, and fails. The verdict of checks that all
// pass would not count, since the check may have changed its own result.
func TestACheckThatChangesProtectedPaths(t *testing.T) {
	for name, c := range map[string]struct{ does, change, passed string }{
		"rewrites what the next one tests": {"echo true >tests/run.sh", "modified tests/run.sh",
			schema.VerdictInconclusive},
		"adds a file":       {"echo >tests/conftest.py", "added tests/conftest.py", schema.VerdictInconclusive},
		"removes a fixture": {"rm tests/data/one", "deleted tests/data/one", schema.VerdictInconclusive},
		"leaves a cache":    {"mkdir tests/__pycache__", "added tests/__pycache__", schema.VerdictPassed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			text := "description: d\nchecks:\n- {name: first, command: '" + c.does +
				"'}\n- {name: second, command: tests/run.sh}\n" +
				"- {name: last, command: 'test ! -e tests/conftest.py && " + c.does + "'}\nprotected: [tests]\n"
			if err := os.WriteFile(w.contract, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			before := w.state()
			doc := w.settle(w.prepare(PrepareOptions{}))
			if doc.Verdict != schema.VerdictFailed || doc.Results[1].Passed || !doc.Results[2].Passed {
				t.Errorf("verdict %s, results %+v", doc.Verdict, doc.Results)
			}
			if v := doc.Weighed(schema.VerdictPassed); v != c.passed {
				t.Errorf("if all checks had passed, the verdict would be %s, want %s", v, c.passed)
			}
			var got []string
			for _, change := range doc.ProtectedChanges {
				got = append(got, change.During+" "+change.Check+" "+change.Change+" "+change.Path)
			}
			if d := cmp.Diff([]string{"check first " + c.change, "check last " + c.change}, got); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			change, path, _ := strings.Cut(c.change, " ")
			named := strings.Contains(strings.Join(doc.Reasons, "\n"),
				"1 protected path was changed while check first ran, so the check proves nothing: "+path+" ("+change+
					")")
			if named != (c.passed == schema.VerdictInconclusive) {
				t.Errorf("reasons %q", doc.Reasons)
			}
			if d := cmp.Diff(before, w.state()); d != "" {
				t.Errorf("the workspace (-before +after):\n%s", d)
			}
		})
	}
}

func TestWhatAGlobProtects(t *testing.T) {
	for glob, want := range map[string]string{
		".":                "a[1]/t a[1] b b/c b/c/t t ü/t ü",
		"./":               "a[1]/t a[1] b b/c b/c/t t ü/t ü",
		"**":               "a[1]/t a[1] b b/c b/c/t t ü/t ü",
		"b":                "b b/c b/c/t",
		"./b/":             "b b/c b/c/t",
		"b//c":             "b/c b/c/t",
		"**/t":             "a[1]/t b/c/t t ü/t",
		"*/t":              "a[1]/t ü/t",
		`a\[1\]/t`:         "a[1]/t",
		"{a\\[1\\],b/c}/t": "a[1]/t b/c/t",
		"ü":                "ü/t ü",
		"t/nothing":        "",
		"nothing":          "",
	} {
		dir := t.TempDir()
		for _, d := range []string{"a[1]", "b/c", "ü"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{"t", "a[1]/t", "b/c/t", "ü/t"} {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := protect(t.Context(), dir, []string{glob}, nil, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range s.entries {
			if !e.parent {
				got = append(got, e.path)
			}
		}
		wanted := strings.Fields(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if d := cmp.Diff(wanted, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", glob, d)
		}
		if unmatched := s.Unmatched(); (len(unmatched) == 1) != (want == "") {
			t.Errorf("%s: unmatched %q", glob, unmatched)
		}
		s.Release()
	}
}
