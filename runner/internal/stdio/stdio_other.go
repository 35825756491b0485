//go:build !linux

package stdio

import (
	"os/exec"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// Streams hands the standard streams through: elsewhere than on Linux nothing
// is captured, and the mode says so.
type Streams struct{ cfg Config }

// Open never fails here.
func Open(cfg Config) (*Streams, error) { return &Streams{cfg: cfg}, nil }

// OwnSession returns false.
func (s *Streams) OwnSession() bool { return false }

// Attach sets cmd's Stdin, Stdout and Stderr to ours.
func (s *Streams) Attach(cmd *exec.Cmd) {
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
func (s *Streams) Finish(time.Duration) schema.Stdio { return schema.Stdio{Mode: ModePassthrough} }

// SetExit, Abort, Suspend, Resume and Resize do nothing.
func (s *Streams) SetExit(int) {}
func (s *Streams) Abort()      {}
func (s *Streams) Suspend()    {}
func (s *Streams) Resume()     {}
func (s *Streams) Resize()     {}
