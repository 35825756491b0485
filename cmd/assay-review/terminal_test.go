package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/assay-run/assay-run/.ci/recordertest"
)

// TestAStoryIsPagedAndColouredOnATerminal runs show with a terminal as its
// output, and sed for a pager.
func TestAStoryIsPagedAndColouredOnATerminal(t *testing.T) {
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "a.tar.gz")
	run := exec.Command(filepath.Join(dir, "assay-run"), "-q", "--spool-dir", t.TempDir(), "-o", bundle, "--", "true")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		env    []string
		paged  bool
		colour bool
	}{
		"a terminal":          {[]string{"TERM=xterm", "PAGER=sed 's/^/P:/'"}, true, true},
		"without colours":     {[]string{"TERM=xterm", "PAGER=sed 's/^/P:/'", "NO_COLOR=1"}, true, false},
		"one that can little": {[]string{"TERM=dumb", "PAGER=sed 's/^/P:/'"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			exe, err := exec.LookPath("assay-review") // testscript's, in PATH
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "show", bundle)
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
			terminal, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			out, _ := io.ReadAll(terminal) // EIO at its end
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if got := strings.Contains(string(out), "P:"); got != c.paged {
				t.Errorf("paged: %v\n%s", got, out)
			}
			if got := strings.Contains(string(out), "\x1b["); got != c.colour {
				t.Errorf("coloured: %v\n%q", got, out)
			}
		})
	}
}
