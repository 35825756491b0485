//go:build linux && (amd64 || arm64)

package kernel

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
)

// Sweeper is a process that frees what this one leaves if it is killed: the slots of
// its sessions, the shared observer if it was the last to use that, and empty
// directories. It is for sessions that have no guard, which does the same.
type Sweeper struct {
	pipe *os.File // its end tells that we are gone
	cmd  *exec.Cmd
}

// StartSweeper starts it. It is nil where this program cannot: see Enter.
func StartSweeper() (*Sweeper, error) {
	if !entered {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &Sweeper{pipe: w, cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{roleName, roleArg, "sweeper", strconv.Itoa(os.Getpid())}, Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, ExtraFiles: []*os.File{r}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}}
	if err := s.cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return s, nil
}

// Remove names directories that it removes if they are empty then. Safe for
// concurrent use, as one write.
func (s *Sweeper) Remove(dirs ...string) {
	if s == nil {
		return
	}
	var lines []byte
	for _, dir := range dirs {
		lines = append(append(lines, dir...), '\n')
	}
	_, _ = s.pipe.Write(lines)
}

// Close ends it, and waits until it has looked for what is left.
func (s *Sweeper) Close() error {
	if s == nil {
		return nil
	}
	_, _ = s.pipe.WriteString("\n") // this process lives on: nothing is to be waited for
	return errors.Join(s.pipe.Close(), s.cmd.Wait())
}

// sweepAfter is that process, for the one with this id. Descriptor 3 is the pipe.
func sweepAfter(id string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var dirs []string
	lines := bufio.NewScanner(os.NewFile(3, "pipe"))
	closed := false
	for lines.Scan() {
		if lines.Text() == "" {
			closed = true
			continue
		}
		dirs = append(dirs, lines.Text())
	}
	if !closed {
		untilGone(id)
	}
	_, _, err := Sweep()
	for _, dir := range dirs {
		_ = os.Remove(dir)
	}
	return err
}
