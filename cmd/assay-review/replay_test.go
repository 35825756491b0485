package main

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/assay-run/assay-run/.ci/recordertest"
)

// TestAReplayIsPausedAndStoppedByKeys plays a recording on a terminal, with a person at
// its keyboard.
func TestAReplayIsPausedAndStoppedByKeys(t *testing.T) {
	dir, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "a.tar.gz")
	run := exec.Command(filepath.Join(dir, "assay-run"), "-q", "--spool-dir", t.TempDir(), "-o", bundle, "--",
		"sh", "-c", "for i in 1 2 3 4; do echo line $i; sleep 0.2; done; printf 'last'")
	terminal, err := pty.StartWithSize(run, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, terminal) // EIO at its end
	terminal.Close()
	if err := run.Wait(); err != nil {
		t.Fatal(err)
	}
	exe, err := exec.LookPath("assay-review") // testscript's, in PATH
	if err != nil {
		t.Fatal(err)
	}
	// So slow that nothing but the keys moves it on.
	cmd := exec.Command(exe, "replay", "--speed", "0.0001", bundle)
	terminal, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 3, Cols: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	out := bufio.NewReader(terminal)
	see := func(want string) {
		t.Helper()
		for got := ""; !strings.Contains(got, want); {
			b, err := out.ReadByte()
			if err != nil {
				t.Fatalf("%v before %q: %q", err, want, got)
			}
			got += string(b)
		}
	}
	press := func(key string) {
		t.Helper()
		if _, err := io.WriteString(terminal, key); err != nil {
			t.Fatal(err)
		}
	}
	see("this one 20 and 3")
	press(" .") // it pauses before the first step already
	see("line 1")
	press(".")
	see("line 2")
	press(" ") // and would go on in an hour
	press("\x03")
	see("\x1b[?25h") // the terminal is fit for use
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitStopped {
		t.Errorf("%v", err)
	}
}
