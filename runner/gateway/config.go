package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Recorder is where a recording leaves its layers, blobs and documents. The
// runner's Recorder is one. All methods are safe for concurrent use. One that
// also has AppendBatch, as archive.Spool does, gets a batch of turns in one
// write.
type Recorder interface {
	Append(layer string, encode func(dst []byte, seq uint64) []byte) error
	Create(path string) (io.WriteCloser, error)
	Put(path string, data []byte) error
	Sync() error
}

type batchRecorder interface {
	AppendBatch(layer string, n int, encode func(dst []byte, seq uint64, i int) []byte) error
}

// Recording is where one recorded run goes.
type Recording struct {
	RunID    string
	Recorder Recorder
	// TurnsFile is the file that Recorder appends the turns layer to. Traces
	// and subscriptions read it; they are refused when it is empty.
	TurnsFile string
}

// Start is what a client said when it opened a recording.
type Start struct {
	AgentID            string // 1 to 128 letters, digits, '.', '_' and '-', no dot first
	Intent             string
	OutcomeDescription string
}

// Config says what a Gateway serves. Exactly one of Run and Open is set.
type Config struct {
	// Run is the one run of "assay-run -- cmd".
	Run *Recording
	// Open makes the recording of a new run, Seal ends it and returns the path
	// of its bundle. Both may be slow and are called concurrently.
	Open func(ctx context.Context, start Start) (Recording, error)
	Seal func(ctx context.Context, rec Recording, session schema.GatewaySession) (bundle string, err error)

	// Now is the time on the runner's clock: since run_started with Run, else
	// since any fixed moment.
	Now func() time.Duration
	// Policy is in force for every client; nil forbids nothing.
	Policy *policy.File
	// Token is asked of WebSocket clients. Empty lets any client in, and then
	// only requests for a loopback host are served.
	Token string
	// Sinks get every call event, beside the recording's own audit layer. The
	// gateway closes them.
	Sinks []*Sink
	// Turns says how calls are told as turns.
	Turns Turns
	// Limits bound what clients can ask for; zero fields take their defaults.
	Limits Limits
	// Observer, if set, is told of the run's calls as they happen.
	Observer Observer
	// Join, if set, moves the process that connected to the cgroup of a tool
	// call. It is called concurrently.
	Join func(conn *net.UnixConn, toolCallID string) error
	// Warn, if set, is told what an operator should know. It must not block.
	Warn func(message string)
}

// Observer learns of calls as they happen, so that what the kernel sees can be
// told apart by them. Its methods are called concurrently and must not block.
type Observer interface {
	// CallDecided: the policy allows or denies a call.
	CallDecided(id, tool, decision string)
	// CallStarted is told before a client is asked to run a tool, CallEnded
	// once its answer has been read, or need not come any more.
	CallStarted(id, tool string)
	CallEnded(id string)
}

// Limits bound what clients can make the gateway hold or wait for. Sizes are
// in bytes.
type Limits struct {
	Connections    int           // at once; 256
	Message        int           // of one message from a client; 4 MiB
	Depth          int           // nesting of a message; 64
	InFlight       int           // proposals and other slow requests of a connection that run at once; 1,024
	InFlightBytes  int           // of those that run or wait, of a connection; 96 MiB
	HeldBytes      int           // the same of all connections, and what is half read; 128 MiB
	Actions        int           // of a proposal; 1,000
	Tools          int           // of a connection; 1,024
	Turns          int           // of a runs.record_turns; 10,000
	Subscriptions  int           // of a connection; 16
	Runs           int           // open at once in serve; 1,024
	Blobs          int           // texts of a run stored apart; 128
	BlobMin        int           // of a text that is stored apart when it repeats; 4 KiB
	Outbox         int           // waiting for a client that does not read; 1 MiB
	CallTimeout    time.Duration // for a tool that names no deadline; 10 min
	MessageTimeout time.Duration // from a message's first byte to its last; 30 s
	WriteTimeout   time.Duration // for a client that does not read; 30 s
	Grace          time.Duration // a recording waits for a client to come back; 30 s
	DrainTimeout   time.Duration // Close waits for clients to end by themselves; 200 ms
}

const (
	defaultMessage = 4 << 20
	defaultDepth   = 64
)

func (l *Limits) setDefaults() {
	def(&l.Connections, 256)
	def(&l.Message, defaultMessage)
	def(&l.Depth, defaultDepth)
	def(&l.InFlight, 1024)
	def(&l.InFlightBytes, 96<<20)
	def(&l.HeldBytes, 128<<20)
	def(&l.Actions, 1000)
	def(&l.Tools, 1024)
	def(&l.Turns, 10_000)
	def(&l.Subscriptions, 16)
	def(&l.Runs, 1024)
	def(&l.Blobs, 128)
	def(&l.BlobMin, 4<<10)
	def(&l.Outbox, 1<<20)
	def(&l.CallTimeout, 10*time.Minute)
	def(&l.MessageTimeout, 30*time.Second)
	def(&l.WriteTimeout, 30*time.Second)
	def(&l.Grace, 30*time.Second)
	def(&l.DrainTimeout, 200*time.Millisecond)
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) check() error {
	switch {
	case (c.Run == nil) == (c.Open == nil):
		return errors.New("gateway: exactly one of Run and Open must be set")
	case c.Open != nil && c.Seal == nil:
		return errors.New("gateway: Open needs Seal")
	case c.Now == nil:
		return errors.New("gateway: Now must be set")
	}
	if err := c.Turns.Check(); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}
