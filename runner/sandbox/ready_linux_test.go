package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestReady delays a command until Options.Ready returns.
func TestReady(t *testing.T) {
	ran := func(j job) bool {
		_, err := os.Lstat(filepath.Join(j.Dir, "ran"))
		return err == nil
	}
	for _, c := range []struct {
		name   string
		change func(*sandboxfile.Settings)
	}{
		{"in a PID namespace", func(*sandboxfile.Settings) {}},
		{"without", func(s *sandboxfile.Settings) { s.Mode, s.Unrestricted = sandboxfile.Observe, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := func(j job, ready func(*Sandbox), fail string) error {
				c.change(&j.Settings)
				p, err := Resolve(&j.Settings, Context{Dir: j.Dir, Env: os.Environ()})
				if err != nil {
					t.Fatal(err)
				}
				var s *Sandbox
				if s, err = New(p, Options{EndWithCommand: true, Ready: func() { ready(s) }}); err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				s.fail = fail
				cmd, err := s.Start(&exec.Cmd{Path: j.Args[0], Args: j.Args, Dir: j.Dir, Stderr: os.Stderr},
					(*exec.Cmd).Start, false)
				if cmd != nil {
					_ = cmd.Wait()
				}
				return err
			}
			j := shell(t, "touch ran")
			early := false
			err := start(j, func(*Sandbox) {
				// longer than the sandbox takes, so that a command that does not wait has run
				time.Sleep(50 * time.Millisecond)
				early = ran(j)
			}, "")
			if err != nil || early || !ran(j) {
				t.Errorf("ran before Ready returned: %v; ran at all: %v; %v", early, ran(j), err)
			}

			j = shell(t, "touch ran")
			err = start(j, func(s *Sandbox) { s.conn.Close() }, "") // as the end of the runner does
			if err == nil || ran(j) {
				t.Errorf("the runner was gone and the command ran: %v; %v", ran(j), err)
			}

			j = shell(t, "touch ran")
			err = start(j, func(*Sandbox) {}, "close_range")
			var missing *LayerError
			if !errors.As(err, &missing) || missing.Layer != LayerPrivileges || ran(j) {
				t.Errorf("the reason of a sandbox that cannot be had is lost: %v; ran: %v", err, ran(j))
			}
		})
	}
}
