//go:build !linux

package stdio

import (
	"os/exec"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// Streams passes the standard streams to the child. On this system nothing is captured, and the mode says so.
type Streams struct{ cfg Config }

// open never fails on this system.
func open(cfg Config) (*Streams, error) { return &Streams{cfg: cfg}, nil }

// ownSession returns false.
func (s *Streams) ownSession() bool { return false }

// attach sets cmd's Stdin, Stdout and Stderr to ours.
func (s *Streams) attach(cmd *exec.Cmd) {
	if s.cfg.Stdin != nil {
		cmd.Stdin = s.cfg.Stdin
	}
	if s.cfg.Stdout != nil {
		cmd.Stdout = s.cfg.Stdout
	}
	if s.cfg.Stderr != nil {
		cmd.Stderr = s.cfg.Stderr
	}
}

// Started does nothing.
func (s *Streams) Started() error { return nil }

// Finish has nothing to wait for.
func (s *Streams) Finish(time.Duration) schema.Stdio { return schema.Stdio{Mode: modePassthrough} }

// SetExit, Abort, Suspend, Resume and Resize do nothing.
func (s *Streams) SetExit(int) {}
func (s *Streams) Abort()      {}
func (s *Streams) suspend()    {}
func (s *Streams) resume()     {}
func (s *Streams) Resize()     {}
