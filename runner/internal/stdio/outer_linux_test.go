package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

// outer is a terminal with a command on it, as a user has it.
type outer struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	dir    string
	mu     sync.Mutex
	seen   bytes.Buffer
	eof    chan struct{}
}

// onTerminal runs argv under the runner on a terminal of 80 by 24.
func onTerminal(t testing.TB, env []string, argv ...string) *outer {
	t.Helper()
	cmd, dir := runner(t, env, argv...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	return start(t, cmd, dir)
}

func start(t testing.TB, cmd *exec.Cmd, dir string) *outer {
	t.Helper()
	m, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := rawFD(m)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true) // package pty made it blocking: Close would wait for Read
	o := &outer{t: t, master: m, cmd: cmd, dir: dir, eof: make(chan struct{})}
	go func() {
		defer close(o.eof)
		buf := make([]byte, 4096)
		for {
			n, err := m.Read(buf)
			o.mu.Lock()
			o.seen.Write(buf[:n])
			o.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill(); m.Close(); <-o.eof })
	return o
}

func (o *outer) output() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.String()
}

// expect waits until want appears.
func (o *outer) expect(want string) {
	o.t.Helper()
	if !leaktest.Within(time.Minute, func() bool { return strings.Contains(o.output(), want) }) {
		o.t.Fatalf("no %q in %q", want, o.output())
	}
}

func (o *outer) keys(s string) {
	o.t.Helper()
	if _, err := o.master.WriteString(s); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outer) settings() unix.Termios {
	o.t.Helper()
	fd, err := rawFD(o.master)
	if err != nil {
		o.t.Fatal(err)
	}
	tio, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		o.t.Fatal(err)
	}
	return *tio
}

func (o *outer) wait() int {
	o.t.Helper()
	code := 0
	within(o.t, time.Minute, "the run on "+o.output(), func() {
		code = exitCode(o.cmd.Wait())
		<-o.eof
	})
	return code
}

func (o *outer) cast() played {
	o.t.Helper()
	p, err := play(member(o.t, o.dir, schema.TerminalPath))
	if err != nil {
		o.t.Fatal(err)
	}
	return p
}

// shellOnTerminal runs a bash script on a terminal, with $R the runner.
func shellOnTerminal(t testing.TB, script string, args ...string) (*outer, string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("bash", append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "R="+wrapper(t, dir), "D="+dir, "TERM=xterm-256color")
	return start(t, cmd, dir), dir
}

func wrapper(t testing.TB, dir string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runner")
	body := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s' \"$@\"\n", spoolEnv, dir, exe)
	if err := os.WriteFile(path, []byte(body), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return path
}
