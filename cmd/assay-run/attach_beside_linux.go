package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/assay-run/assay-run/runner"
)

// beside is the command that attach runs, if one was given. attach does not record it.
type beside struct {
	app     *app
	command []string
	once    sync.Once // for a caller that may come to start it again

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil until it was started
	done chan struct{} // closed when it has ended
	code int           // its exit code, valid once done is closed
}

// start starts the command. When the command ends, start's goroutine calls stop.
func (b *beside) start(stop context.CancelCauseFunc) {
	if len(b.command) == 0 {
		return
	}
	cmd := exec.Command(b.command[0], b.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = b.app.stdin, b.app.stdout, b.app.stderr
	if err := cmd.Start(); err != nil {
		b.code = runner.ExitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			b.code = runner.ExitNotFound
		}
		b.app.say.Failure(err)
		stop(errors.New("the command could not be started"))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cmd, b.done = cmd, make(chan struct{})
	go func() {
		defer close(b.done)
		_ = cmd.Wait()
		b.code = cmd.ProcessState.ExitCode()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			b.code = 128 + int(ws.Signal())
		}
		stop(errors.New("the command ended"))
	}()
}

// pass passes a signal on to the command, except the signals that a terminal also sends to
// the command itself.
func (b *beside) pass(s os.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil && s != syscall.SIGINT && s != syscall.SIGQUIT {
		_ = b.cmd.Process.Signal(s)
	}
}

// exit waits for the command's end and returns its exit code. It is 0 without a command.
func (b *beside) exit() int {
	if b.done != nil {
		<-b.done
	}
	return b.code
}
