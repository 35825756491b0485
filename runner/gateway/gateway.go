package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Environment variables of an agent.
const (
	EnvSocket = "ASSAY_RUN_SOCKET" // path of the unix socket
	EnvURL    = "ASSAY_RUN_URL"    // ws://host:port
	EnvToken  = "ASSAY_RUN_TOKEN"  // bearer token for the WebSocket
)

// CodeBusy is the error code for too many requests in flight or too many clients. The client may try again.
const CodeBusy = rpc.CodeBusy

// Gateway serves clients until it is closed. All methods are safe for
// concurrent use.
type Gateway struct {
	cfg    Config
	server *rpc.Server
	count  *counters
	events atomic.Uint64  // call events offered to sinks
	run    *recording.Run // nil in serve
	runs   runs
	rates  rates // by agent; used in serve

	mu      sync.Mutex
	env     []string
	resumed []*recording.Run // until Listen

	closing sync.Once
	suspend bool // leave open runs to a later gateway
	result  error
}

// New makes a gateway that does not listen yet. With Config.Run, it records the policy at once.
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
	g.server = rpc.New(rpc.Config{Open: g.open, Authenticate: authenticate(cfg.Token, cfg.Agents),
		DropStopped: cfg.Open != nil, Limits: cfg.Limits.ConnLimits})
	if cfg.Run != nil {
		g.run = g.newRun(*cfg.Run, 0, policy.NewSet(cfg.Policy))
		g.runs.add(g.run, "")
		if err := g.run.PutPolicy(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Policy returns the policy in force as in policy.json, with the rules that clients added, and whether there is one.
// It needs Config.Run.
func (g *Gateway) Policy() (schema.Policy, bool) {
	if g.run == nil {
		return schema.Policy{}, false
	}
	return g.run.Rules.Document(g.run.ID)
}

// authenticate returns a function that returns the agent of a token, or "" for the token all.
func authenticate(all string, agents map[string]string) func(string) (string, bool) {
	if all == "" && len(agents) == 0 {
		return nil
	}
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return func(token string) (agent string, ok bool) {
		for t, a := range agents { // compare all, so that the time reveals nothing
			if same(t, token) {
				agent, ok = a, true
			}
		}
		return agent, ok || all != "" && same(all, token)
	}
}

// Cut returns how many values of the run's turns were cut.
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
		Zero: zero, Rules: rules, Turns: g.cfg.Turns, BlobBytes: g.cfg.Limits.BlobBytes, BlobMin: g.cfg.Limits.BlobMin,
		Once: g.cfg.Run == nil,
	}
}

// Listen serves clients at an address until Close. It returns what a client needs: the path of a "unix" socket, or
// the URL of a "ws" one. With an empty unix address it makes a socket in a new 0700 directory, which Close removes. A
// path must not exist, except as a socket that nobody serves. A ws address is host:port; it needs a token unless the
// host is a loopback address.
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

// Env returns the variables that tell an agent where the gateway listens.
func (g *Gateway) Env() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.env...)
}

// Close ends the gateway. It handles what disconnected clients have sent, gives connected clients a moment to finish,
// cancels the calls in flight, ends open runs as incomplete, and drains the sinks. When ctx ends, it drops what
// clients have not sent yet. The error reports evidence that could not be recorded. If only a sink lacks events,
// Config.Warn reports that. A second Close waits for the first and returns the same.
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
			// Calls after runs.complete are not turns, but are counted.
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
			g.warn(err.Error()) // the bundle has all events
		}
	}
	return errors.Join(errs...)
}

func (g *Gateway) warn(message string) {
	if g.cfg.Warn != nil {
		g.cfg.Warn(message)
	}
}

// remember reads what an earlier gateway left in its journal.
func (g *Gateway) remember(path string) error {
	j, notes, err := openJournal(path, g.warn)
	if err == errInUse {
		g.warn(path + ": " + err.Error() + ", so the next restart will lose idempotency keys and rate limits")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	g.runs.journal, g.rates.journal = j, j
	g.runs.past, g.rates.before = map[string]note{}, map[string]map[string][]time.Duration{}
	now, wall := g.cfg.Now(), time.Now().UnixNano()
	for _, n := range notes {
		if n.Run != "" {
			g.runs.past[n.Run] = n
			continue
		}
		if g.rates.before[n.Agent] == nil {
			g.rates.before[n.Agent] = map[string][]time.Duration{}
		}
		at := now - time.Duration(max(wall-n.At, 0))
		g.rates.before[n.Agent][n.Limit] = append(g.rates.before[n.Agent][n.Limit], at)
	}
	return nil
}

// Resume continues a run that an earlier gateway left open, from its layers and documents in dir. elapsed is the time
// since the run's start. It is called before Listen. From Listen on, the run's clients have the grace time to
// reconnect. After an error, the gateway does not have the run.
func (g *Gateway) Resume(to Recording, dir string, elapsed time.Duration) error {
	past := g.runs.past[to.RunID]
	var start schema.GatewaySession
	if err := recording.Document(dir, schema.SessionPath, &start); err != nil {
		return err
	}
	zero := g.cfg.Now() - elapsed
	rules := policy.NewSet(g.cfg.Policy).Shared(g.rates.of(start.AgentID))
	run, lost, err := recording.Resume(to, g.options(zero, rules), past.Key, dir)
	if err != nil {
		return err
	}
	for _, l := range lost {
		if err := g.recordLost(run, l, elapsed); err != nil {
			return err
		}
	}
	g.runs.add(run, past.Key)
	delete(g.runs.past, run.ID)
	run.Attach() // keeps the run open until clients can connect
	g.resumed = append(g.resumed, run)
	return nil
}

// await starts the grace time of the resumed runs.
func (g *Gateway) await() {
	g.mu.Lock()
	runs := g.resumed
	g.resumed = nil
	g.mu.Unlock()
	for _, run := range runs {
		run.Detach(g.cfg.Limits.Grace, func() { g.abandon(run) })
	}
}

// recordLost ends a call that was in flight when the recorder died. It is not known whether the tool ran.
func (g *Gateway) recordLost(run *recording.Run, l recording.Lost, now time.Duration) error {
	outcome := failedWith(schema.FailCallbackLost, true)
	if !l.Turn {
		_, err := run.Record([]schema.TurnBody{{
			Tool: l.Tool, VerifierVerdict: schema.VerdictNotRun, Error: outcome.Code, Source: "gateway",
			ToolCallID: l.ToolCallID,
			TStartNS:   int64(l.TNS), TEndNS: int64(now),
		}})
		if err != nil {
			return err
		}
	}
	run.State.Set("last_tool", l.Tool)
	run.State.Ended(l.Tool, &outcome, schema.VerdictNotRun)
	return g.audit(run, &schema.CallEventBody{
		CallID: schema.NewID(), ToolID: l.Tool, ToolCallID: l.ToolCallID,
		DurationMS: (now - l.TNS).Milliseconds(), DurationUS: (now - l.TNS).Microseconds(),
		Outcome: outcome, Tier: schema.DefaultTier,
	})
}

// Suspend ends the gateway as Close does, but leaves open runs to a later gateway's
// Resume.
func (g *Gateway) Suspend(ctx context.Context) error {
	g.closing.Do(func() {
		g.suspend = true
		g.result = g.close(ctx)
	})
	return g.result
}

// Metrics is a snapshot of what the gateway did. Calls is the sum of Outcomes and the number of call events. For one
// run, Outcomes agrees with the audit layer.
type Metrics struct {
	Calls    uint64            `json:"calls"`
	Outcomes map[string]uint64 `json:"outcomes"` // by kind
	// Errors counts calls that failed: by the gateway's code for execution_failed (tool_error for a tool's own
	// codes), otherwise by kind.
	Errors map[string]uint64 `json:"errors"`
	// Events counts the call events written to audit layers.
	Events uint64 `json:"events"`
	// Unrecorded counts the call events that no audit layer has, because no run was open (in serve) or its recorder
	// was broken.
	Unrecorded uint64 `json:"unrecorded"`
	// Drops counts the call events that each sink dropped.
	Drops map[string]uint64 `json:"drops"`
	Turns uint64            `json:"turns"`
	// Refused counts the messages that were answered with an error that is not a call's, or that ended the
	// connection.
	Refused uint64 `json:"refused"`
	// LateResults counts the results that came after the end of their call, or for no call.
	LateResults uint64 `json:"late_results"`
	Connections int    `json:"connections"`
	// InFlightBytes is the memory of running and waiting requests.
	InFlightBytes int64 `json:"in_flight_bytes"`
}

// counters are the live numbers of Metrics. One lock keeps a snapshot consistent.
type counters struct {
	mu sync.Mutex
	m  Metrics
}

func newCounters() *counters {
	return &counters{m: Metrics{Outcomes: map[string]uint64{}, Errors: map[string]uint64{}, Drops: map[string]uint64{}}}
}

func (c *counters) add(f func(m *Metrics)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.m)
}

// call counts one call event.
func (c *counters) call(o *schema.CallOutcome, recorded bool) {
	c.add(func(m *Metrics) {
		m.Calls++
		m.Outcomes[o.Kind]++
		switch o.Kind {
		case schema.CallSuccess:
		case schema.CallExecutionFailed:
			m.Errors[failureKind(o.Code)]++
		default:
			m.Errors[o.Kind]++
		}
		if recorded {
			m.Events++
		} else {
			m.Unrecorded++
		}
	})
}

// failureKind returns the gateway's own code for a failure. Metrics do not list tools' codes, since there may be any
// number of them.
func failureKind(code string) string {
	switch code {
	case schema.FailCallbackLost, schema.FailDeadline, schema.FailCancelled:
		return code
	}
	return schema.FailToolError
}

// Metrics returns a consistent snapshot.
func (g *Gateway) Metrics() Metrics {
	g.count.mu.Lock()
	defer g.count.mu.Unlock()
	m := g.count.m
	t := g.server.Stats()
	m.Refused, m.LateResults, m.Connections, m.InFlightBytes = t.Refused, t.LateResults, t.Connections, t.InFlightBytes
	m.Outcomes, m.Errors, m.Drops = maps.Clone(m.Outcomes), maps.Clone(m.Errors), map[string]uint64{}
	for _, s := range g.cfg.Sinks {
		m.Drops[s.Name()] += s.Drops()
	}
	return m
}

// audit counts the one call event of a call, and writes it to the audit layer of run, which may be nil in serve, and
// to every sink.
func (g *Gateway) audit(run *recording.Run, e *schema.CallEventBody) error {
	e.TS = timestamp(time.Now())
	e.SchemaVersion = 2
	if e.GrantedCapabilities == nil {
		e.GrantedCapabilities = []string{}
	}
	outcome := e.Outcome
	e.Outcome = outcome.Wire()
	body, err := json.Marshal(e)
	if err != nil {
		body = []byte("{}") // plain data always encodes
	}
	runID := "none"
	if run != nil {
		runID = run.ID
		err = run.CallEvent(body, outcome.Kind)
	}
	g.count.call(&outcome, run != nil && err == nil)
	if len(g.cfg.Sinks) > 0 {
		event := schema.CallEvent{Schema: schema.CallEventV2, RunID: runID, Seq: g.events.Add(1) - 1, CallEventBody: *e}
		for _, s := range g.cfg.Sinks {
			s.OnCall(event)
		}
	}
	return err
}

// timestamp formats a time in UTC with milliseconds. It builds on time.RFC3339, which package time formats much
// faster than other layouts.
func timestamp(t time.Time) string {
	var room [32]byte
	b := bytes.TrimSuffix(t.UTC().AppendFormat(room[:0], time.RFC3339), []byte("Z"))
	ms := t.Nanosecond() / 1e6
	return string(append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z'))
}

// Limits of a token file and of a token, in bytes.
const (
	maxTokenFile = 1 << 20
	minToken     = 16
)

// LoadTokens reads a token file, for Config.Agents. Each line has an agent's id and its token, separated by white
// space. Empty lines and lines that start with # are ignored. An agent may have several tokens; a token belongs to
// one agent.
func LoadTokens(path string) (agents map[string]string, err error) {
	data, err := config.ReadFile(path, maxTokenFile)
	if err != nil {
		return nil, err
	}
	agents = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		// Errors must not quote a line: it may be a token.
		switch {
		case len(words) != 2:
			return nil, fmt.Errorf("%s: line %d: want an agent's id and its token", path, n)
		case !agentName().MatchString(words[0]):
			return nil, fmt.Errorf("%s: line %d: an agent's id must be 1 to 128 letters, digits, '.', '_' or '-'", path,
				n)
		case len(words[1]) < minToken:
			return nil, fmt.Errorf("%s: line %d: a token must have at least %d bytes", path, n, minToken)
		}
		if _, taken := agents[words[1]]; taken {
			return nil, fmt.Errorf("%s: line %d: an earlier line has the same token", path, n)
		}
		agents[words[1]] = words[0]
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(agents) == 0 {
		return nil, fmt.Errorf("%s has no tokens", path)
	}
	return agents, nil
}

// open makes the state of a new client.
func (g *Gateway) open(conn *rpc.Conn) rpc.Session {
	c := &client{g: g, conn: conn, tools: map[string]*tool{}, subs: map[string]context.CancelFunc{}}
	if g.run != nil {
		c.rules, c.run = g.run.Rules, g.run
		g.run.Attach()
	} else {
		c.rules, c.state = policy.NewSet(g.cfg.Policy), policy.NewState()
	}
	return c
}

// start gives a client its run: the gateway's own, or a new one in serve.
func (g *Gateway) start(ctx context.Context, c *client, start Start, key string) (*recording.Run, *jsonrpc.Error) {
	if id := c.conn.Identity(); id != "" && id != start.AgentID {
		return nil, jsonrpc.Errorf(codeNotYours, "the token is of the agent %s", id)
	}
	if g.run != nil {
		return g.run, refusal(g.run.Open(start, key, g.cfg.Now()))
	}
	if key != "" {
		key = mark(start.AgentID + "\x00" + key)
	}
	g.runs.opening.Lock() // a repeated key must find the run that the first request opens
	defer g.runs.opening.Unlock()
	g.runs.mu.Lock()
	known, past := g.runs.byKey[key], g.runs.pastKey(key)
	open := len(g.runs.list) - g.runs.ended
	g.runs.mu.Unlock()
	switch {
	case key != "" && known != nil:
		if state := known.Info().State; state != recording.Open {
			return nil, jsonrpc.Errorf(codeRunState, "run %s, which this idempotency_key opened, is %s", known.ID,
				state)
		}
		return known, nil
	case key != "" && past.Run != "":
		return nil, jsonrpc.Errorf(codeRunState, "run %s, which this idempotency_key opened, is %s", past.Run,
			past.state())
	case open >= g.cfg.Limits.Runs:
		return nil, jsonrpc.Errorf(CodeBusy, "%d runs are open, which is the limit; try again", open)
	}
	made, err := g.cfg.Open(ctx, start)
	if err != nil {
		return nil, notRecorded(err)
	}
	now := g.cfg.Now()
	run := g.newRun(made, now, c.rulesNow().Shared(g.rates.of(start.AgentID)))
	err = errors.Join(run.Open(start, key, now), run.PutPolicy())
	if err != nil {
		g.cfg.Seal(ctx, made, schema.GatewaySession{Schema: schema.GatewaySessionV0, RunID: run.ID,
			State: recording.Incomplete, Calls: map[string]uint64{}})
		return nil, notRecorded(err)
	}
	g.runs.add(run, key)
	g.runs.journal.sync(note{Run: run.ID, Agent: mark(start.AgentID), Key: key, State: recording.Open})
	return run, nil
}

// end ends a run with a client's outcome, or as incomplete if outcome is empty. In serve it makes the run's bundle.
func (g *Gateway) end(run *recording.Run, outcome recording.Outcome) *jsonrpc.Error {
	err := run.End(outcome, g.cfg.Now, func(session schema.GatewaySession) (string, error) {
		if run == g.run {
			return "", run.Sync()
		}
		return g.seal(run, session)
	})
	var state *recording.StateError
	if errors.As(err, &state) {
		return jsonrpc.Errorf(codeRunState, "%v", err)
	}
	if g.runs.journal != nil {
		info := run.Info()
		g.runs.journal.sync(note{Run: run.ID, Agent: mark(info.AgentID), State: info.State})
	}
	if err == nil {
		return nil
	}
	return jsonrpc.Errorf(codeNotRecorded, "run %s has ended, but not everything could be recorded: %s", run.ID,
		jsonrpc.Brief(err))
}

// seal makes the bundle of a run in serve, and drops the oldest ended runs.
func (g *Gateway) seal(run *recording.Run, session schema.GatewaySession) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sealTimeout)
	defer cancel()
	bundle, err := g.cfg.Seal(ctx, run.To, session)
	if err != nil {
		g.warn("run " + run.ID + ": " + err.Error())
	}
	g.runs.forget()
	return bundle, err
}

// abandon ends a run whose clients did not reconnect.
func (g *Gateway) abandon(run *recording.Run) {
	if !g.runs.hold() {
		return
	}
	defer g.runs.work.Done()
	if err := g.end(run, recording.Outcome{}); err != nil && err.Code != codeRunState {
		g.warn(err.Message)
	}
}

// observer returns who gets the events of a run's calls; it may be nil.
func (g *Gateway) observer(run *recording.Run) Observer {
	if g.cfg.Observe != nil {
		return g.cfg.Observe(run.To)
	}
	return g.cfg.Observer
}
