package gateway

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Names in the environment of an agent.
const (
	EnvSocket = "ASSAY_RUN_SOCKET" // path of the unix socket
	EnvURL    = "ASSAY_RUN_URL"    // ws://host:port
	EnvToken  = "ASSAY_RUN_TOKEN"  // bearer token of the WebSocket
)

// CodeBusy is the code of the error for too many requests in flight or too many
// clients: try again.
const CodeBusy = rpc.CodeBusy

// Gateway serves clients until it is closed. All methods are safe for
// concurrent use.
type Gateway struct {
	cfg    Config
	server *rpc.Server
	count  *counters
	events atomic.Uint64  // lines offered to sinks
	run    *recording.Run // the gateway's own; nil in serve
	runs   runs
	rates  rates // by agent, in serve

	mu      sync.Mutex
	env     []string
	resumed []*recording.Run // until Listen

	closing sync.Once
	suspend bool // open runs are left to a later gateway
	result  error
}

// New makes a gateway that does not listen yet. With Config.Run, it records the
// policy at once.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Limits.setDefaults()
	cfg.Turns = cfg.Turns.Effective()
	g := &Gateway{cfg: cfg, count: newCounters(), runs: runs{
		byID: map[string]*recording.Run{}, byKey: map[string]*recording.Run{},
	}}
	if cfg.Journal != "" {
		if err := g.remember(cfg.Journal); err != nil {
			return nil, err
		}
	}
	g.server = rpc.New(rpc.Config{Open: g.open, Authenticate: authenticate(cfg.Token, cfg.Agents), DropStopped: cfg.Open != nil, Limits: cfg.Limits.ConnLimits})
	if cfg.Run != nil {
		g.run = g.newRun(*cfg.Run, 0, policy.NewSet(cfg.Policy))
		g.runs.add(g.run, "")
		if err := g.run.PutPolicy(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Policy is the policy in force as policy.json has it, with the rules that
// clients added, and whether there is any. It is for a gateway with Config.Run.
func (g *Gateway) Policy() (schema.Policy, bool) {
	if g.run == nil {
		return schema.Policy{}, false
	}
	return g.run.Rules.Document(g.run.ID)
}

// authenticate returns the agent of a token, "" for the token of all agents.
func authenticate(all string, agents map[string]string) func(string) (string, bool) {
	if all == "" && len(agents) == 0 {
		return nil
	}
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return func(token string) (agent string, ok bool) {
		for t, a := range agents { // each of them, whichever it is: time tells nothing
			if same(t, token) {
				agent, ok = a, true
			}
		}
		return agent, ok || all != "" && same(all, token)
	}
}

// Cut is how many values of the run's turns were cut.
func (g *Gateway) Cut() uint64 {
	if g.run == nil {
		return 0
	}
	return g.run.Cut()
}

func (g *Gateway) newRun(to Recording, zero time.Duration, rules *policy.Set) *recording.Run {
	return recording.New(to, g.options(zero, rules))
}

func (g *Gateway) options(zero time.Duration, rules *policy.Set) recording.Options {
	return recording.Options{
		Zero: zero, Rules: rules, Turns: g.cfg.Turns, BlobBytes: g.cfg.Limits.BlobBytes, BlobMin: g.cfg.Limits.BlobMin, Once: g.cfg.Run == nil,
	}
}

// Listen serves clients at an address until Close, and returns what a client
// needs: the path of a "unix" socket, or the URL of a "ws" one. An empty unix
// address makes a socket in a new 0700 directory, which Close removes. A path must
// not exist, except as a socket that nobody serves. A ws address is host:port; it
// needs a token unless the host is a loopback address.
func (g *Gateway) Listen(network, address string) (string, error) {
	at, err := g.server.Listen(network, address)
	if err != nil {
		return "", err
	}
	g.await()
	g.mu.Lock()
	defer g.mu.Unlock()
	if network == "unix" {
		g.env = append(g.env, EnvSocket+"="+at)
	} else if g.env = append(g.env, EnvURL+"="+at); g.cfg.Token != "" {
		g.env = append(g.env, EnvToken+"="+g.cfg.Token)
	}
	return at, nil
}

// Env are the variables that tell an agent where the gateway listens.
func (g *Gateway) Env() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.env...)
}

// Close ends the gateway. It takes what clients that are gone have sent, gives
// the others a moment to end by themselves, cancels the calls in flight, ends
// open runs as incomplete, and drains the sinks. When ctx ends, it drops what clients
// have not sent yet. The error reports evidence that could not be recorded. If only a
// sink lacks events, Config.Warn reports that. A second Close waits for the first and
// returns the same.
func (g *Gateway) Close(ctx context.Context) error {
	g.closing.Do(func() { g.result = g.close(ctx) })
	return g.result
}

func (g *Gateway) close(ctx context.Context) error {
	errs := []error{g.server.Close(ctx)}
	g.runs.close()
	defer g.runs.journal.close()
	for _, r := range g.runs.all() {
		switch state := r.Info().State; {
		case state == recording.Open && g.suspend:
			errs = append(errs, r.PutSession(), g.cfg.Suspend(r.To))
		case state == recording.Open:
			if err := g.end(r, recording.Outcome{}); err != nil {
				errs = append(errs, err)
			}
		case r == g.run && state != recording.Ready:
			// Calls after runs.complete are not turns, but they count.
			r.PutSession()
		}
		if err := r.Failure(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, s := range g.cfg.Sinks {
		closer, can := s.(interface{ Close(context.Context) error })
		if !can {
			continue
		}
		if err := closer.Close(ctx); err != nil {
			g.warn(err.Error()) // the bundle has them all
		}
	}
	return errors.Join(errs...)
}

func (g *Gateway) warn(message string) {
	if g.cfg.Warn != nil {
		g.cfg.Warn(message)
	}
}
