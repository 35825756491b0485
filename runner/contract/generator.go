//go:build linux || darwin

package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CommandGenerator runs a shell command: the prompt is its standard input and the answer its standard output. Its
// stderr goes to stderr. When ctx is done, its whole process group is killed.
func CommandGenerator(command string, stderr io.Writer) Generator {
	return func(ctx context.Context, prompt string) (string, error) {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
		answer := &capped{left: maxAnswerBytes}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(prompt), answer, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = time.Second // for processes that keep the pipes open
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case answer.over:
			return "", fmt.Errorf("its answer is larger than %d bytes", maxAnswerBytes)
		case errors.As(err, &exit):
			return "", fmt.Errorf("%s: %v", command, exit)
		case err != nil && !errors.Is(err, exec.ErrWaitDelay):
			return "", fmt.Errorf("%s: %w", command, err)
		}
		return answer.kept.String(), nil
	}
}

// capped keeps the first left bytes, refuses more, and remembers whether it did.
type capped struct {
	kept bytes.Buffer // not embedded: its ReadFrom has no limit
	left int
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	if len(p) > c.left {
		c.over = true
		return 0, errors.New("too much output")
	}
	c.left -= len(p)
	return c.kept.Write(p)
}
