// Package stdio is everything between our standard streams and the child's:
// it carries the child's bytes to where they were going anyway, and keeps a
// capped copy.
//
// # Modes
//
//   - passthrough (Config.Capture is false): the child gets our descriptors.
//   - pipe: neither stdout nor stderr is a terminal. The child writes into pipes
//     of ours, and we carry on what it wrote.
//   - terminal: stdout or stderr is a terminal, and the child sees one there: the
//     slave of a pseudo-terminal, recorded as an asciicast.
//
// # Standard input
//
// A stdin that is not a terminal is handed to the child as it is, in every mode:
// we never read it, so what the child leaves is there for whoever comes next,
// offset included, and it ends when it ends. The same goes for a terminal while
// stdout is none (`assay-run -- cmd | less`), since less may be reading the
// same keyboard. Only where stdin and stdout are both terminals do we read the
// keyboard on the child's behalf. Keys are never recorded.
//
// # What is recorded
//
// A stream is recorded in the order in which the child's writes reached the
// kernel, across all its processes. Two streams have no order between them,
// except that a stderr that is the very file of stdout (2>&1) shares one pipe
// with it: then both are in the stdout member, as they came, and
// schema.Stdio.StderrInStdout says so. A terminal mixes both by nature.
//
// # How it differs from no runner at all
//
//   - The child may run ahead of a slow reader by one more pipe (64 KiB).
//   - A write error of ours other than a closed pipe (a full disk under `> file`)
//     reaches Config.OnError, and the child as EPIPE: a pipe cannot carry ENOSPC.
//   - Under `> file` the child cannot seek its output, nor see its size.
//   - On a terminal of its own the child's parent is not the runner but a helper
//     process in the place of a shell, so that ^Z works; see [cgroup.Job].
//   - Keys that we have read and the child has not are lost when it ends.
//   - A job in the background that reads its terminal waits for `fg`; it is not
//     stopped by SIGTTIN.
//
// # For the runner
//
// The kernel raises SIGPIPE in us when our reader has left: it is not to be
// forwarded. A terminal that we made raw stays so when we are killed by SIGKILL
// or by a fatal error of the Go runtime, unless whom Config.Settings told restores
// it. A panic in a goroutine of this package does; for any other, defer Finish.
package stdio

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Modes of a run's standard streams, as schema.Stdio.Mode has them.
const (
	ModePassthrough = "passthrough"
	ModePipe        = "pipe"
	ModeTerminal    = "terminal"
)

// Stream names, as Config.OnTruncate and Config.OnError get them.
const (
	Stdout   = "stdout"
	Stderr   = "stderr"
	Terminal = "terminal"
)

var (
	// ErrCapture is wrapped by what Config.OnError gets when a copy could not be
	// kept. The stream itself is unharmed.
	ErrCapture = errors.New("capture failed")
	// ErrOutput is wrapped by what Config.OnError gets when our own stdout or
	// stderr could not be written, for another reason than that its reader left.
	// The child sees EPIPE from then on.
	ErrOutput = errors.New("output failed")
)

// Config says where the child's streams lead. The callbacks may be nil; they are
// called from the goroutines that copy, two streams at the same time possibly,
// and must not call back into Streams.
type Config struct {
	// Stdin, Stdout and Stderr are ours. They stay open, and their flags and
	// offsets are not touched. A nil one is /dev/null to the child.
	Stdin, Stdout, Stderr *os.File
	// Capture false hands the three straight to the child.
	Capture bool
	// CaptureBytes caps the copy of each stream. Zero keeps none: then every
	// stream that carried a byte counts as truncated.
	CaptureBytes int64
	// Create opens a member of the spool: schema.StdoutPath, schema.StderrPath
	// or schema.TerminalPath, each at most once and only for its first byte. It
	// may be nil only if nothing is captured.
	Create func(member string) (io.WriteCloser, error)
	// Settings, which may be nil, is told before our terminal gets settings other
	// than its own, with both; and, with nil, after it has its own again.
	Settings func(set, own *unix.Termios)
	// OnTruncate is called once for a stream whose copy hit CaptureBytes, with
	// the number of the stream's bytes that the copy holds.
	OnTruncate func(stream string, at int64)
	// OnError is called once for each stream and kind of failure; err wraps
	// ErrCapture or ErrOutput.
	OnError func(stream string, err error)
}

func (c *Config) truncated(stream string, at int64) {
	if c.OnTruncate != nil {
		c.OnTruncate(stream, at)
	}
}

func (c *Config) settings(set, own *unix.Termios) {
	if c.Settings != nil {
		c.Settings(set, own)
	}
}

func (c *Config) failed(stream string, err error) {
	if c.OnError != nil {
		c.OnError(stream, err)
	}
}
