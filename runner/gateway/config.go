package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Types of package recording that users of this package need.
type (
	Recording = recording.Recording
	Start     = recording.Start
)

// ConnLimits limit what the client of one connection can make the gateway hold or wait for, and all of them together.
type ConnLimits = rpc.Limits

// Config configures a Gateway. Exactly one of Run and Open is set.
type Config struct {
	// Run is the single run of "assay-run -- cmd".
	Run *Recording
	// Open makes the recording of a new run. Seal ends it and returns the path of its bundle. Both may be slow and
	// are called concurrently.
	Open func(ctx context.Context, start Start) (Recording, error)
	Seal func(ctx context.Context, rec Recording, session schema.GatewaySession) (bundle string, err error)
	// Suspend releases an open run, so that a later gateway can [Gateway.Resume] it. See
	// [Gateway.Suspend].
	Suspend func(rec Recording) error
	// Journal is the file that keeps, for a later gateway, idempotency keys, which runs
	// have ended, and the calls that count against rate limits. Empty keeps nothing.
	Journal string

	// Now is the time on the runner's clock: since run_started with Run, else since any fixed moment.
	Now func() time.Duration
	// Policy applies to every client; nil forbids nothing.
	Policy *policyfile.File
	// Token is required of WebSocket clients whose token is not in Agents. If it is empty and there are no Agents,
	// every client may connect, but the gateway serves only requests for a loopback host.
	Token string
	// Agents maps tokens to the ids of agents with their own token. Such a client may start, read and change only the
	// runs of its agent.
	Agents map[string]string
	// Sinks get every call event, in addition to the recording's audit layer. The gateway closes those that have a
	// Close(context.Context) error.
	Sinks []Sink
	// Turns configures how calls become turns.
	Turns specfile.Turns
	// Limits limit what clients can ask for. A zero field means its default.
	Limits Limits
	// Observer, if set, gets the events of the run's calls as they happen.
	Observer Observer
	// Observe, if set, returns the observer of a run that Open made.
	Observe func(Recording) Observer
	// Join, if set, moves the process that connected into the cgroup of a tool call. It is called concurrently.
	Join func(conn *net.UnixConn, toolCallID string) error
	// Own, if set, is called when a client says that only the process that connected and its descendants execute its
	// calls. It returns the process's id. It is called concurrently.
	Own func(conn *net.UnixConn) (tree uint32, err error)
	// Warn, if set, gets warnings for the operator. It must not block.
	Warn func(message string)
}

// Observer gets the events of calls as they happen, to bind kernel events to them. Its methods are called
// concurrently and must not block.
type Observer interface {
	// CallDecided is called when a call is allowed or denied. The decision is empty if only the client has a policy.
	CallDecided(id, tool, decision string)
	// CallArguments is called after CallDecided, with the call's parameters as JSON.
	CallArguments(id string, parameters []byte)
	// CallStarted is called before the gateway asks a client to run a tool. CallEnded is called after the answer was
	// read, or when none is needed any more. tree is the process that Own returned for the client; 0 for none.
	CallStarted(id, tool string, tree uint32)
	CallEnded(id string)
	// CallReported is called when a client says that a call happened elsewhere, or that another policy denied it.
	CallReported(id, tool string, denied bool)
}

// Limits limit what clients can make the gateway hold or wait for. Zero fields mean the default in the field's
// comment.
type Limits struct {
	ConnLimits

	Actions       int           // per proposal; 1,000
	Tools         int           // per connection; 1,024
	Turns         int           // per runs.record_turns; 10,000
	Subscriptions int           // per connection; 16
	Runs          int           // open at the same time in serve; 1,024
	BlobBytes     int64         // of a run's texts stored as blobs; 1 GiB
	BlobMin       int           // smallest repeated text that is stored as a blob; 4 KiB
	CallTimeout   time.Duration // for a tool that names no deadline; 10 min
	Grace         time.Duration // how long a run waits for a client to reconnect; 30 s
}

func (l *Limits) setDefaults() {
	l.Actions = cmp.Or(l.Actions, 1000)
	l.Tools = cmp.Or(l.Tools, 1024)
	l.Turns = cmp.Or(l.Turns, 10_000)
	l.Subscriptions = cmp.Or(l.Subscriptions, 16)
	l.Runs = cmp.Or(l.Runs, 1024)
	l.BlobBytes = cmp.Or(l.BlobBytes, 1<<30)
	l.BlobMin = cmp.Or(l.BlobMin, 4<<10)
	l.CallTimeout = cmp.Or(l.CallTimeout, 10*time.Minute)
	l.Grace = cmp.Or(l.Grace, 30*time.Second)
	// The gateway must notice a missing client within the grace time.
	l.PingEvery = cmp.Or(l.PingEvery, min(max(l.Grace/3, time.Second), 10*time.Second))
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
