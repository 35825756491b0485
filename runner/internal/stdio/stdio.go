// Package stdio connects the runner's standard streams with the child's: it passes
// the child's bytes on to where they would have gone, and keeps a capped copy.
// In these comments "we" are the runner.
//
// # Modes
//
//   - passthrough (Config.Capture is false): the child gets our descriptors.
//   - pipe: neither stdout nor stderr is a terminal. The child writes into our
//     pipes, and we pass on what it wrote.
//   - terminal: stdout or stderr is a terminal, and the child sees one there: the
//     slave of a pseudo-terminal, recorded as an asciicast.
//
// # Standard input
//
// If stdin is not a terminal, the child gets it unchanged, in every mode. We never
// read it, so what the child does not read stays there for the next program, at the
// same offset. If stdin is a terminal and stdout is not (`assay-run -- cmd | less`),
// the child gets it unchanged too: less may read the same keyboard. We read the
// keyboard for the child only if stdin and stdout are both terminals. Keys are
// never recorded.
//
// # What is recorded
//
// A stream is recorded in the order in which the child's writes reached the
// kernel, across all its processes. There is no order between two streams. If
// stderr is the same file as stdout (2>&1), both share one pipe: the stdout member
// has both in their order, and schema.Stdio.StderrInStdout says so. A terminal
// always mixes both.
//
// # How it differs from no runner at all
//
//   - The child may run ahead of a slow reader by one more pipe (64 KiB).
//   - If our own write fails for another reason than a closed pipe (a full disk under
//     `> file`), Config.OnError gets the error, and the child gets EPIPE: a pipe cannot
//     pass ENOSPC on.
//   - Under `> file` the child cannot seek its output, nor see its size.
//   - On a terminal the child's parent is not the runner but a helper process that acts
//     as a shell, so that ^Z works; see [cgroup.Job].
//   - Keys that we have read and the child has not are lost when the child ends.
//   - A background job that reads its terminal waits for `fg`; SIGTTIN does not stop
//     it.
//
// # For the runner
//
// We get SIGPIPE when our reader has left: do not forward it. If SIGKILL or a fatal
// error of the Go runtime kills us, a terminal that we made raw stays raw, unless
// the process that Config.Settings told restores it. After a panic in a goroutine of
// this package the terminal is restored; for other panics, defer Finish.
package stdio

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema/redact"
)

// Values of schema.Stdio.Mode.
const (
	modePassthrough = "passthrough"
	modePipe        = "pipe"
	modeTerminal    = "terminal"
)

// Stream names for Config.OnTruncate and Config.OnError.
const (
	stdout   = "stdout"
	stderr   = "stderr"
	Terminal = "terminal"
)

var (
	// errCapture is wrapped by errors for Config.OnError if a copy could not be kept. The stream itself is not
	// affected.
	errCapture = errors.New("capture failed")
	// ErrOutput is wrapped by errors for Config.OnError if our own stdout or stderr could not be written, unless its
	// reader left. From then on, the child gets EPIPE.
	ErrOutput = errors.New("output failed")
)

// Config says where the child's streams lead. The callbacks may be nil. The copying goroutines call them, possibly
// two at the same time; they must not call back into Streams.
type Config struct {
	// Stdin, Stdout and Stderr are ours. They stay open, and their flags and offsets do not change. A nil one is
	// /dev/null for the child.
	Stdin, Stdout, Stderr *os.File
	// Capture, if false, passes the three to the child directly.
	Capture bool
	// CaptureBytes limits the copy of each stream. Zero keeps none: then every stream with at least one byte counts
	// as truncated.
	CaptureBytes int64
	// Create opens a member of the spool: schema.StdoutPath, schema.StderrPath or schema.TerminalPath, each at most
	// once and only for its first byte. It may be nil only if nothing is captured.
	Create func(member string) (io.WriteCloser, error)
	// Pieces returns what removes secrets from a member that is written in pieces; nil leaves them.
	Pieces func(member string) *redact.Pieces
	// Settings is called with our terminal's new and own settings before the new ones are set, and with nil after its
	// own are restored. It may be nil.
	Settings func(set, own *unix.Termios)
	// OnTruncate is called once for a stream whose copy reached CaptureBytes, with the number of the stream's bytes
	// in the copy.
	OnTruncate func(stream string, at int64)
	// OnError is called once per stream and kind of failure. err wraps errCapture or ErrOutput.
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
