package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verdicts are tests, and what is said of a run with them. In the tests, first() reports whether it is called for the
// first time, over all runs of the test binary. Each package has a test that passes besides.
var verdicts = map[string]struct {
	test string
	said []string // lines, or parts of lines
	last string
}{
	"all pass": {
		`func TestA(t *testing.T) {}`,
		nil, "2 passed, 0 failed, 0 skipped"},
	"fails the first time only": {
		`func TestA(t *testing.T) { if first() { t.Error("chance") } }`,
		[]string{"flaky: m TestA: failed, then passed twice alone; add it to .ci/flaky; its output is in ",
			"\n1 flaky, which are among the passed\n"},
		"2 passed, 0 failed, 0 skipped"},
	"fails half of the time": {
		`func TestKnown(t *testing.T) { if first() { t.Error("chance") } }`,
		[]string{"flaky: m TestKnown: ", "; .ci/flaky has it since 2026-11-28 without a cause: mend it next"},
		"2 passed, 0 failed, 0 skipped"},
	"always fails": {
		`func TestA(t *testing.T) { t.Error("bug") }`,
		[]string{"failed: m TestA, and did not pass alone (run 1 of 2)", "bug"},
		"1 passed, 1 failed, 0 skipped"},
	"fails the first time and the third": {
		`func TestA(t *testing.T) { if first() || !first() && third() { t.Error("bug") } }`,
		[]string{"failed: m TestA, and did not pass alone (run 2 of 2)"},
		"1 passed, 1 failed, 0 skipped"},
	"is skipped when run again": {
		`func TestA(t *testing.T) { if first() { t.Error("bug") }; t.Skip("later") }`,
		[]string{"failed: m TestA, and did not pass alone (run 1 of 2)"},
		"1 passed, 1 failed, 0 skipped"},
	"one of two subtests": {
		`func TestA(t *testing.T) {
			t.Run("b c/(d)", func(t *testing.T) { if first() { t.Error("chance") } })
			t.Run("e", func(t *testing.T) { if os.Getenv("ALONE") != "" { t.Error("was run again, too") } })
		}`,
		[]string{"flaky: m TestA/b_c/(d): "},
		"4 passed, 0 failed, 0 skipped"},
	"one of two subtests by chance, the other always": {
		`func TestA(t *testing.T) {
			t.Run("b", func(t *testing.T) { if first() { t.Error("chance") } })
			t.Run("c", func(t *testing.T) { t.Error("bug") })
		}`,
		[]string{"flaky: m TestA/b: ", "failed: m TestA/c, "},
		"2 passed, 2 failed, 0 skipped"},
	"a subtest by chance, what it is part of always": {
		`func TestA(t *testing.T) {
			t.Run("b", func(t *testing.T) { if first() { t.Error("chance") } })
			t.Error("bug")
		}`,
		[]string{"failed: m TestA, and did not pass alone"},
		"1 passed, 2 failed, 0 skipped"},
	"panics the first time": {
		`func TestA(t *testing.T) { if first() { panic("boo") } }`,
		[]string{"failed: m did not build, or ended before its tests did", "boo"},
		"0 passed, 1 failed, 0 skipped"},
	"ends the process the first time": {
		`func TestA(t *testing.T) { if first() { os.Exit(3) } }`,
		[]string{"failed: m did not build, or ended before its tests did"},
		"0 passed, 1 failed, 0 skipped"},
	"takes too long the first time": {
		`func TestA(t *testing.T) { if first() { time.Sleep(time.Minute) } }`,
		[]string{"failed: m did not build, or ended before its tests did", "test timed out after 5s"},
		"0 passed, 1 failed, 0 skipped"},
	"does not build": {
		`func TestA(t *testing.T) { undefined() }`,
		[]string{"failed: m did not build, or ended before its tests did", "undefined: undefined"},
		"0 passed, 1 failed, 0 skipped"},
	"leaves something behind the first time": {
		`func TestA(t *testing.T) { leak = first() }`,
		[]string{"flaky: m: failed, then passed twice alone"},
		"2 passed, 0 failed, 0 skipped"},
	"always leaves something behind": {
		`func TestA(t *testing.T) { leak = true }`,
		[]string{"failed: m left something behind, and did not pass alone (run 1 of 2)"},
		"2 passed, 1 failed, 0 skipped"},
	"fails by chance, and always leaves something behind": {
		`func TestA(t *testing.T) { leak = true; if first() { t.Error("chance") } }`,
		[]string{"failed: m TestA, and did not pass alone (run 1 of 2)"},
		"1 passed, 1 failed, 0 skipped"},
	"TestMain fails": {
		`func TestA(t *testing.T) { code = 1 }`,
		[]string{"failed: m, although none of its tests did"},
		"2 passed, 1 failed, 0 skipped"},
	"more tests fail than chance has": {
		`func TestA(t *testing.T) { for range 21 { t.Run("b", func(t *testing.T) { if first() { t.Error("bug") } }) } }
		func first() bool { return os.Getenv("ALONE") == "" }`,
		[]string{"failed: m, not run again"},
		"1 passed, 22 failed, 0 skipped"},
}

const rest = `package m

import (
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	leak bool
	code int
	_    = time.Now
	_    = fmt.Sprint
)

func TestMain(m *testing.M) {
	code = max(m.Run(), code)
	if leak {
		fmt.Fprint(os.Stderr, "FAIL: the tests left behind:\na file\n")
		code = 1
	}
	os.Exit(code)
}
`

const firstAndThird = `
func first() bool {
	f, err := os.OpenFile("runs", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprint(f, ".")
	n, _ := f.Stat()
	return n.Size() == 1
}

func third() bool { n, _ := os.Stat("runs"); return n.Size() > 4 }
`

// TestVerdicts runs tests with go test and hands their output to summary.
func TestVerdicts(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: ", err)
	}
	for name, v := range verdicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			source := rest + v.test + "\nfunc TestZ(t *testing.T) {}\n"
			if !strings.Contains(v.test, "func first()") {
				source += firstAndThird
			}
			keep := filepath.Join(dir, "kept")
			for file, text := range map[string]string{
				"go.mod": "module m\ngo 1.24\n", "m_test.go": source,
				"flaky":    "# comment\n2026-11-28 TestKnown\n2026-11-28 TestOther a cause\n",
				"again.sh": `ALONE=1 exec "$GO" test -json -count=1 -run "$2" "$1"` + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Log(source)
			all := exec.Command(goTool, "test", "-json", "-count=1", "-timeout", "5s", ".")
			all.Dir = dir
			events, _ := all.Output()

			var out bytes.Buffer
			again := []string{"sh", "-c", `cd "$0" && GO=$1 && export GO && shift && . ./again.sh`, dir, goTool}
			code := summary(append([]string{"-known", filepath.Join(dir, "flaky"), "-keep", keep, "--"}, again...),
				bytes.NewReader(events), &out)
			if want := !strings.Contains(v.last, " 0 failed"); (code != 0) != want {
				t.Errorf("summary ended with %d", code)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if got := lines[len(lines)-1]; got != v.last {
				t.Errorf("the last line is %q, want %q", got, v.last)
			}
			for _, said := range v.said {
				if !strings.Contains(out.String(), said) {
					t.Errorf("%q is not said", said)
				}
			}
			failed, _ := os.ReadFile(filepath.Join(keep, "failed"))
			if listed := strings.HasPrefix(string(failed), "m\t"); listed != (code != 0) {
				t.Errorf("the list of failures is %q", failed)
			}
			kept, _ := filepath.Glob(filepath.Join(keep, "*.txt"))
			if flaky := strings.Count(out.String(), "\nflaky: "); len(kept) != flaky {
				t.Errorf("%d flaky tests, but %d files", flaky, len(kept))
			}
			for _, f := range kept {
				text, _ := os.ReadFile(f)
				if !strings.Contains(string(text), "chance") && !strings.Contains(string(text), "a file") {
					t.Errorf("%s does not say what failed: %q", f, text)
				}
			}
			if t.Failed() {
				t.Logf("summary said:\n%s", out.String())
			}
		})
	}
}

// TestKnownFlakyTests: .ci/flaky can be read.
func TestKnownFlakyTests(t *testing.T) {
	if _, err := readKnown("../flaky"); err != nil {
		t.Error(err)
	}
}

// TestASlowerPackageIsNamed compares runs of which only the times differ.
func TestASlowerPackageIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "times")
	run := func(a, b string) string {
		var out bytes.Buffer
		events := `{"Action":"pass","Package":"a","Test":"TestA","Elapsed":` + a + `}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"pass","Package":"a","Elapsed":` + a + `}
`
		if b != "" {
			events += `{"Action":"pass","Package":"b","Elapsed":` + b + "}\n"
		}
		if code := summary([]string{"-times", file}, strings.NewReader(events), &out); code != 0 {
			t.Errorf("summary ended with %d: %s", code, out.String())
		}
		return out.String()
	}
	for i, c := range []struct{ a, b, said string }{
		{"30", "0.1", ""}, // there was no run before
		{"39.9", "0.2", ""},
		{"30", "", ""},
		{"40.1", "0.9", "slower: a took 40.1s, in the run before 30.0s\n"}, // b has too little to tell
		{"40", "4", "slower: b took 4.0s, in the run before 0.9s\n"},
	} {
		out := run(c.a, c.b)
		if n := strings.Count(out, "slower: "); !strings.Contains(out, c.said) || n != min(len(c.said), 1) {
			t.Errorf("run %d said %q, want %q", i+1, out, c.said)
		}
	}
	if got, err := os.ReadFile(file); string(got) != "40.0\ta\n4.0\tb\n40.0\ta\tTestA\n" {
		t.Errorf("the file is %q: %v", got, err)
	}
}
