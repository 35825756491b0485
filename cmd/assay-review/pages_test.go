package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
)

var painted = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// TestPagesFitTheTerminal prints every page on terminals of two widths and into a
// pipe, where no line is broken.
func TestPagesFitTheTerminal(t *testing.T) {
	layertest.Host(t)
	built, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	run, dir := filepath.Join(built, "assay-run"), t.TempDir()
	review, err := exec.LookPath("assay-review") // testscript's, in PATH
	if err != nil {
		t.Fatal(err)
	}
	var bundles []string
	for _, word := range []string{"one", "two"} {
		bundle := filepath.Join(dir, strings.Repeat(word+"-", 30)+".tar.gz")
		long := "true " + strings.Repeat(word+" ", 30) + strings.Repeat(word, 30) + "; exit " + fmt.Sprint(len(bundles))
		cmd := exec.Command(run, "-q", "--kernel", "notify", "--spool-dir", t.TempDir(), "--redaction-key", "ephemeral",
			"-o", bundle, "--", "sh", "-c", long)
		if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != len(bundles) {
			t.Fatalf("%v\n%s", err, out)
		}
		bundles = append(bundles, bundle)
	}
	one, two := bundles[0], bundles[1]
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n- expr: 'run.exit_code == 1'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, page := range []struct {
		args   []string
		code   int
		colour bool
	}{
		{[]string{run, "inspect", one}, 0, true},
		{[]string{run, "verify", one}, 0, true},
		{[]string{run, "events", "--table", "--layer", "lifecycle", one}, 0, false},
		{[]string{run, "events", "--table", two}, 0, true},
		{[]string{review, "show", "--no-pager", one, two}, 0, true},
		{[]string{review, "diff", one, two}, 1, true},
		{[]string{review, "gate", "--rules", rules, one, two}, 1, true},
		{[]string{review, "query", "--table", "true", two}, 0, true},
		{[]string{review, "query", "--table", "--of", "runs", "true", one, two}, 0, false},
		{[]string{review, "query", "--types"}, 0, false},
		{[]string{run, "doctor"}, -1, true}, // what it says depends on the host
	} {
		command := func(env ...string) *exec.Cmd {
			cmd := exec.Command(page.args[0], page.args[1:]...)
			cmd.Env = append([]string{"TERM=xterm", "HOME=" + dir}, env...)
			return cmd
		}
		name := page.args[1]
		piped, _ := command().Output()
		if page.code >= 0 && widest(string(piped)) <= 80 {
			t.Errorf("%s: no line in a pipe has more than 80 columns, so this shows nothing:\n%s", name, piped)
		}
		if strings.Contains(string(piped), "\x1b") {
			t.Errorf("%s: a pipe gets colours: %q", name, piped)
		}
		for _, width := range []int{80, 50} {
			for _, env := range []string{"NO_COLOR=", "NO_COLOR=1"} {
				cmd := command(env)
				terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: uint16(width)})
				if err != nil {
					t.Fatal(err)
				}
				data, _ := io.ReadAll(terminal) // EIO at its end
				terminal.Close()
				_ = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); page.code >= 0 && code != page.code {
					t.Errorf("%s exits with %d, want %d", name, code, page.code)
				}
				shown := painted.ReplaceAllString(string(data), "")
				if n := widest(shown); n > width {
					t.Errorf("%s has a line of %d columns on a terminal of %d:\n%s", name, n, width, shown)
				}
				if coloured := shown != string(data); coloured != (page.colour && env == "NO_COLOR=") {
					t.Errorf("%s with %s: coloured is %v:\n%q", name, env, coloured, data)
				}
				if words := func(s string) string {
					return strings.Join(strings.Fields(s), "")
				}; page.code >= 0 && words(shown) != words(string(piped)) {
					t.Errorf("%s: breaking lines loses or adds text:\n%s\nin a pipe:\n%s", name, shown, piped)
				}
			}
		}
	}
}

// widest is the length of the longest line, in characters.
func widest(s string) (n int) {
	for line := range strings.Lines(s) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, "\r\n")))
	}
	return n
}
