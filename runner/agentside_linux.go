package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// agentSide receives what the agent reports: in its logs, and through the gateway.
type agentSide struct {
	log    *evidence.Log
	calls  *evidence.Calls
	inside agentEnclosure
	nest   nest
	access access
	sdkLog string // as in the spec; empty: there is no log
	polLog string
	shim   string // the shim that the spec names as the writer of sdkLog

	sdk     *agentlog.Follower // nil without a log
	policy  *agentlog.Follower
	gateway *gateway.Gateway // nil if it cannot listen
	socket  string           // its path

	socketDir *rundir.Dir // the socket's directory, if the command runs as another user

	// The followers' goroutines own these fields until they are closed.
	due              uint64   // the seq that the SDK's next line must have
	resync           bool     // lines were refused, so seq may have a gap
	sdkErr, policErr error    // the first failure to record a line
	kept             uint64   // lines of the SDK that were kept despite a fault
	strangers        []string // the first sdk_names that are not the shim's

	mu       sync.Mutex // guards warnings, which the gateway's goroutines add
	warnings []string

	refused map[string]uint64 // lines that were not imported, by layer
	reasons []schema.Reason
	missing error // what is wrong with the reports, or could not be recorded
}

// agentEnclosure is what agentSide needs of the enclosure.
type agentEnclosure interface {
	// user is the command's user; nil is the runner's.
	user() *sandbox.User
	// confined reports whether the command runs in a sandbox.
	confined() bool
	// outlive names a directory that is removed if the runner is killed.
	outlive(dir string)
}

// nest makes a cgroup below the agent's.
type nest func(name string) (*cgroup.Nested, error)

// access is the policy for the gateway.
type access struct {
	rules     *policyfile.File // nil without a policy
	websocket bool
	turns     specfile.Turns
	turnsFile string
	audit     []AuditSink
	mode      cgroup.Mode
}

func newAgentSide(log *evidence.Log, opt Options, spec *specfile.Spec, inside agentEnclosure, nest nest) *agentSide {
	a := &agentSide{
		log: log, inside: inside, nest: nest,
		sdkLog: spec.SDKEventLog, polLog: spec.PolicyDecisionLog, shim: spec.AgentShim,
		access: access{
			rules: opt.Policy, websocket: spec.Gateway == specfile.GatewayWS,
			turns: spec.Turns, turnsFile: opt.TurnsFile, audit: opt.Audit, mode: opt.Contained.host().Mode(),
		},
	}
	known := binding.Options{}
	if a.sdkLog != "" || a.polLog != "" {
		known = binding.Options{Known: a.known, SDK: a.sdkLog != ""}
	}
	a.calls = evidence.NewCalls(log, known)
	return a
}

// open starts to receive the agent's reports.
func (a *agentSide) open(context.Context) error {
	if err := a.openGateway(); err != nil {
		return err
	}
	return a.followLogs()
}

// equip sets the environment variables that say where to report.
func (a *agentSide) equip(cmd *exec.Cmd) {
	if a.sdk != nil {
		path, _ := absLog(a.sdkLog) // Validate has checked it
		cmd.Env = append(cmd.Env, agents.EnvLog+"="+path, agents.EnvLogSchema+"="+schema.SDKEventV0)
	}
	if a.policy != nil {
		path, _ := absLog(a.polLog)
		cmd.Env = append(cmd.Env, EnvDecisionLog+"="+path)
	}
	if a.gateway != nil {
		cmd.Env = append(cmd.Env, a.gateway.Env()...)
	}
}

// reach lists the files that the agent reports to.
func (a *agentSide) reach() []string {
	var paths []string
	for _, log := range []struct {
		follower *agentlog.Follower
		path     string
	}{{a.sdk, a.sdkLog}, {a.policy, a.polLog}} {
		if log.follower != nil {
			path, _ := absLog(log.path)
			paths = append(paths, path)
		}
	}
	if a.socket != "" {
		paths = append(paths, a.socket)
	}
	return paths
}

// rules are the rules in force, including those that clients added.
func (a *agentSide) rules() (schema.Policy, bool) {
	if a.gateway == nil {
		return schema.Policy{}, false
	}
	return a.gateway.Policy()
}

// close reads the rest of the reports. It is called when no process of the run is left and the kernel layer has its
// last event.
func (a *agentSide) close() error {
	a.closeGateway()
	a.refused = map[string]uint64{
		"sdk":    a.endLog(a.sdk, "sdk", "sdk event log", a.sdkErr),
		"policy": a.endLog(a.policy, "policy", "policy decision log", a.policErr),
	}
	a.borrowed()
	if a.gateway != nil && a.gateway.Cut() > 0 {
		a.reasons = append(a.reasons, schema.CutReason(a.gateway.Cut()))
	}
	a.refused["sdk"] -= min(a.kept, a.refused["sdk"])
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.warnings {
		reason := schema.Reason{Subject: "gateway", Code: "gateway_warning", Message: w}
		a.reasons = append(a.reasons, reason)
		a.log.Lose(reason)
	}
	return a.missing
}

// health counts the lines of the agent's logs that were not imported as dropped.
func (a *agentSide) health(h *schema.ObservationHealth) {
	h.Reasons = append(h.Reasons, a.reasons...)
	for name, n := range a.refused {
		c := h.Layers[name]
		c.Seen, c.Dropped = c.Seen+n, c.Dropped+n
		h.Layers[name] = c
	}
}

// openGateway starts the gateway with the policy that is in force from now on. If the gateway cannot listen, and the
// run needs neither a policy nor a socket, the run continues and says so.
func (a *agentSide) openGateway() error {
	cfg := gateway.Config{
		Run: &gateway.Recording{RunID: a.log.RunID, Recorder: a.log.Recorder, TurnsFile: a.access.turnsFile},
		Now: a.log.Elapsed, Policy: a.access.rules, Turns: a.access.turns, Observer: a.calls, Warn: a.warned,
	}
	for _, s := range a.access.audit {
		cfg.Sinks = append(cfg.Sinks, gateway.NewSink(s.Name, s.Writer))
	}
	if a.access.websocket {
		cfg.Token = rand.Text()
	}
	if m := a.access.mode; m == cgroup.Unified || m == cgroup.Hybrid {
		cfg.Join = newCallGroups(a.nest, a.calls.Correlator).join
	}
	if kernel.HostPIDs() { // in another PID namespace the kernel layer has other numbers
		cfg.Own = a.ownCalls
	}
	g, err := gateway.New(cfg)
	if err == nil {
		a.gateway = g // close ends it from now on
		err = a.openSockets()
	}
	if err == nil {
		return nil
	}
	if a.access.rules != nil || a.access.websocket || len(a.access.audit) > 0 {
		return sandboxError("gateway_failed", err)
	}
	a.reasons = append(a.reasons, schema.Reason{
		Subject: "gateway", Code: "no_gateway",
		Message: fmt.Sprintf("the agent had no socket to report tool calls to, only its logs and its "+
			"tools' environment: %v", err),
		Remedy: "set TMPDIR to a directory that can be written and has a short name",
	})
	return nil
}

// ownCalls tells the correlator that a client executes its calls only in its own process and its descendants.
func (a *agentSide) ownCalls(conn *net.UnixConn) (uint32, error) {
	pid, pidfd, err := peer(conn)
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	a.calls.Tree(uint32(pid), a.log.Now)
	return uint32(pid), nil
}

// openSockets listens where the spec says. Connections to these sockets do not count as actions of the agent.
func (a *agentSide) openSockets() error {
	at, err := a.socketFor(a.inside.user())
	if err != nil {
		return err
	}
	socket, err := a.gateway.Listen("unix", at)
	if err != nil {
		return err
	}
	a.socket = socket
	a.inside.outlive(filepath.Dir(socket))
	if u := a.inside.user(); u != nil {
		if err := os.Lchown(socket, u.UID, u.GID); err != nil {
			return fmt.Errorf("give the gateway's socket to the command's user: %w", err)
		}
	}
	a.calls.Own("unix:" + socket)
	if real, err := filepath.EvalSymlinks(filepath.Dir(socket)); err == nil {
		a.calls.Own("unix:" + filepath.Join(real, filepath.Base(socket)))
	}
	if !a.access.websocket {
		return nil
	}
	url, err := a.gateway.Listen("ws", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.calls.Own(strings.TrimPrefix(url, "ws://"))
	return nil
}

// socketFor returns where to listen if the command runs as u, who cannot reach the usual place; empty means the usual
// place. The user owns the socket but not its directory, so nobody can replace the socket.
func (a *agentSide) socketFor(u *sandbox.User) (at string, err error) {
	if u == nil {
		return "", nil
	}
	if a.socketDir, err = rundir.Open(); err != nil {
		return "", err
	}
	return filepath.Join(a.socketDir.Path, "gateway"), nil
}

// warned records a warning of the gateway's goroutines.
func (a *agentSide) warned(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, message)
}

// closeTimeout limits how long clients outside the run may still send requests at the end.
const closeTimeout = 5 * time.Second

// closeGateway handles what clients sent before they ended, and ends the session.
func (a *agentSide) closeGateway() {
	if a.gateway == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := a.gateway.Close(ctx); err != nil {
		a.missing = errors.Join(a.missing, fmt.Errorf("record what came through the gateway: %w", err))
	}
	_ = a.socketDir.Remove() // if this fails, the guard removes it
}

// followLogs starts to follow the logs that the spec names.
func (a *agentSide) followLogs() error {
	sdkPath, err := absLog(a.sdkLog)
	if err != nil {
		return sandboxError("sdk_event_log_unusable", err)
	}
	policyPath, err := absLog(a.polLog)
	if err != nil {
		return sandboxError("policy_decision_log_unusable", err)
	}
	a.calls.Own(realPath(sdkPath), realPath(policyPath))
	if a.inside.confined() {
		for _, path := range []string{sdkPath, policyPath} {
			if err := makeLog(path, a.inside.user()); err != nil {
				return sandboxError("agent_log_unusable", err)
			}
		}
	}
	if sdkPath != "" {
		if a.sdk, err = agentlog.Follow(agentlog.Options{Path: sdkPath, Name: realPath(sdkPath), Now: a.log.Now,
			Line: a.sdkLine, Restart: a.restart, Old: true, Precise: a.calls.Open}); err != nil {
			return logError("sdk_event_log_unusable", err)
		}
		a.calls.Log(realPath(sdkPath), a.sdk.Before())
	}
	if policyPath != "" {
		var precise func() bool
		if a.sdk == nil { // otherwise decisions do not start or end calls
			precise = a.calls.Open
		}
		if a.policy, err = agentlog.Follow(agentlog.Options{Path: policyPath, Name: realPath(policyPath),
			Now: a.log.Now, Line: a.decision, Restart: func() {}, Precise: precise}); err != nil {
			return logError("policy_decision_log_unusable", err)
		}
		a.calls.Log(realPath(policyPath), a.policy.Before())
	}
	return nil
}

// makeLog creates a log for u if it does not exist. The command cannot: a sandbox allows files, not new names, and
// another user may lack the permission.
func makeLog(path string, u *sandbox.User) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && u != nil {
		err = f.Chown(u.UID, u.GID)
	}
	if err != nil {
		return fmt.Errorf("make the agent's log: %w", err)
	}
	return f.Close()
}

// realPath is a log's path without symbolic links, as kernel events name it.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func logError(code string, err error) *runError {
	return &runError{source: schema.SourceRunner, exit: schema.ExitRunner, ResultError: schema.ResultError{
		Code: code, Message: "follow the log: " + err.Error(),
		Hint: "the log's directory must exist before the command starts",
	}}
}

// known reads the logs up to t, and reports whether they are complete up to t.
func (a *agentSide) known(t int64) bool {
	sdk := a.sdk == nil || a.sdk.Known(t)
	policy := a.policy == nil || a.policy.Known(t)
	return sdk && policy
}

// restart notes that the SDK's log was truncated or replaced: its numbers may start again.
func (a *agentSide) restart() { a.due, a.resync = 0, true }

// sdkLine records a line of the SDK's log.
func (a *agentSide) sdkLine(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.SDKEvent
	if err := agentlog.DecodeSDK(line, a.log.RunID, &e); err != nil {
		a.resync = true
		return err
	}
	var gap error
	switch {
	case e.Seq < a.due:
		return fmt.Errorf("seq is %d, which an earlier line already has; expected %d", e.Seq, a.due)
	case e.Seq > a.due && !a.resync:
		gap = fmt.Errorf("seq is %d, expected %d: lines are missing before this one; this line was kept", e.Seq, a.due)
	}
	a.due, a.resync = e.Seq+1, false
	e.TNS = at.At
	if e.SDKName != "" && !writes(a.shim, e.SDKName) && len(a.strangers) < maxStrangers &&
		!slices.Contains(a.strangers, e.SDKName) {
		a.strangers = append(a.strangers, e.SDKName)
	}
	if err := a.log.Append(schema.SDKPath, func(seq uint64) any {
		e.Seq = seq
		return &e
	}); err != nil && a.sdkErr == nil {
		a.sdkErr = err
	}
	a.calls.SDK(&e, at)
	if gap != nil {
		a.kept++
	}
	return gap
}

// decision records a line of the policy's log.
func (a *agentSide) decision(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.PolicyEvent
	if err := agentlog.DecodeDecision(line, a.log.RunID, &e); err != nil {
		return err
	}
	e.TNS = at.At
	if err := a.log.Append(schema.PolicyPath, func(seq uint64) any {
		e.Seq = seq
		return &e
	}); err != nil && a.policErr == nil {
		a.policErr = err
	}
	a.calls.DecidedOn(e.Tool, e.Decision)
	a.calls.Decision(&e, at)
	return nil
}

// maxStrangers limits how many foreign sdk_names are named.
const maxStrangers = 8

// borrowed adds a reason if a program other than the shim wrote to the SDK's log.
func (a *agentSide) borrowed() {
	if len(a.strangers) == 0 {
		return
	}
	a.reasons = append(a.reasons, schema.Reason{
		Subject: "sdk", Code: "sdk_name_differs",
		Message: fmt.Sprintf("the SDK event log names %q, but --agent-shim names %s: it is not certain "+
			"which of them reported", a.strangers, a.shim),
		Remedy: "name the program that reports with --agent-shim, or \"log\" for one that is not listed",
	})
}

// endLog closes a log, reports what is wrong with it, and returns how many lines had a fault. unwritten is the error
// of recording its lines.
func (a *agentSide) endLog(f *agentlog.Follower, subject, name string, unwritten error) (bad uint64) {
	if f == nil {
		return 0
	}
	account := f.Close()
	for _, p := range account.Problems {
		a.reasons = append(a.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_" + p.Code, Message: p.Error(), Remedy: remedies[p.Code],
		})
	}
	if account.More > 0 {
		a.reasons = append(a.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_more",
			Message: fmt.Sprintf("%d more problems are not listed; %d of %d lines had a problem", account.More,
				account.Bad, account.Lines),
		})
	}
	if account.Wrong() {
		first, others := account.Problems[0], len(account.Problems)-1+int(account.More)
		for _, p := range account.Problems {
			if p.Code == agentlog.CodeLine {
				first = p
				break
			}
		}
		err := fmt.Errorf("%s: %w", name, first)
		if others > 0 {
			err = fmt.Errorf("%w (and %d more)", err, others)
		}
		a.missing = errors.Join(a.missing, err)
	}
	if unwritten != nil {
		a.missing = errors.Join(a.missing, fmt.Errorf("record the %s: %w", name, unwritten))
	}
	return account.Bad
}

var remedies = map[string]string{
	agentlog.CodeMissing:   "let the command write it: its path is in the command's environment",
	agentlog.CodeStale:     "remove it before the run",
	agentlog.CodeNotFile:   "name a path where the command makes a regular file",
	agentlog.CodeTruncated: "let the command only append to it",
	agentlog.CodeReplaced:  "let the command only append to it",
}

// callGroups gives each tool call a cgroup of its own. Every process that reaches the gateway's socket can ask for
// one. Only a process of the run is moved, only into a cgroup below the agent's, and only itself: the kernel says
// which process connected. In a sandbox without access to the socket, the environment variable alone names the call.
type callGroups struct {
	nest       nest
	correlator *binding.Correlator

	mu     sync.Mutex
	groups map[string]*cgroup.Nested // by call; may still be in use
	made   int
}

// Limits on the cgroups of calls.
const (
	maxCallGroups  = 512 // at a time; for further calls, the environment variable alone names the call
	tidyCallGroups = 64  // unused ones are removed from this number on
)

func newCallGroups(nest nest, c *binding.Correlator) *callGroups {
	return &callGroups{nest: nest, correlator: c, groups: map[string]*cgroup.Nested{}}
}

// join moves the process that connected into the call's cgroup. The cgroups are removed with the session.
func (s *callGroups) join(conn *net.UnixConn, id string) error {
	if err := CheckCallID(id); err != nil {
		return err
	}
	pid, pidfd, err := peer(conn)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.group(id)
	if err != nil {
		return err
	}
	if err := g.Adopt(pid, pidfd); err != nil {
		if g.Remove() == nil {
			delete(s.groups, id)
		}
		return err
	}
	return nil
}

// group returns the cgroup of a call, and creates it if needed.
func (s *callGroups) group(id string) (*cgroup.Nested, error) {
	if g := s.groups[id]; g != nil {
		return g, nil
	}
	if len(s.groups) >= tidyCallGroups {
		for id, g := range s.groups {
			if g.Remove() == nil { // it was empty
				delete(s.groups, id)
			}
		}
	}
	if len(s.groups) >= maxCallGroups {
		return nil, fmt.Errorf("%d tool calls have cgroups already", len(s.groups))
	}
	s.made++
	g, err := s.nest(fmt.Sprintf("tool-%d", s.made))
	if err != nil {
		return nil, err
	}
	if !s.correlator.Cgroup(id, g.ID()) {
		return nil, errors.Join(errors.New("there are too many tool calls"), g.Remove())
	}
	s.groups[id] = g
	return g, nil
}

// peer returns the process that connected, and a pidfd for it, since its process id may be reused. The caller closes
// the pidfd.
func peer(conn *net.UnixConn) (pid, pidfd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, -1, err
	}
	const soPeerPIDFD = 77 // since Linux 6.5, asm-generic/socket.h
	pidfd = -1
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		pid = int(cred.Pid)
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPIDFD); err != nil {
			pidfd, err = unix.PidfdOpen(pid, 0)
		}
	})
	if err = errors.Join(err, cerr); err == nil && pid <= 0 {
		unix.Close(pidfd)
		err = errors.New("the process is not in our pid namespace")
	}
	if err != nil {
		return 0, -1, fmt.Errorf("tell who connected: %w", err)
	}
	return pid, pidfd, nil
}

// modelSide runs the endpoint between the command and the providers of its models. Without a model gateway it does
// nothing.
type modelSide struct {
	log      *evidence.Log
	calls    *evidence.Calls
	redactor *redact.Redactor
	dir      string
	routes   func() ([]model.Route, error)
	prices   func() (*modelfile.Prices, error)
	budget   modelfile.Budget
	replay   *tape.Cassette // nil: the providers answer
	strict   bool
	denies   string // why tools that providers run are refused; empty: they are not
	digests  bool
	wanted   bool
	alone    bool        // no log reports when calls begin
	sealed   func() bool // the command's only ways out of its network are assay-run's own

	names    []string // of the routes
	held     bool     // a route uses a key of the runner's
	endpoint *model.Endpoint
	recorder *model.Recorder
	path     *model.Path
}

// open starts the endpoint.
func (m *modelSide) open(context.Context) error {
	routes, err := m.routes()
	if err == nil && len(routes) == 0 {
		return nil
	}
	var prices *modelfile.Prices
	if err == nil {
		prices, err = m.prices()
	}
	if err == nil {
		m.recorder = model.NewRecorder(model.RecorderConfig{Log: m.log, Calls: m.calls, Digests: m.digests,
			Prices: prices, Replay: m.replay})
		m.endpoint, err = model.Listen(model.Config{
			Routes: routes, Now: m.log.Now, Record: m.recorder, Dir: m.dir, Drained: drained,
			Budget: m.budget, Prices: prices, Connections: connections(),
			NoProviderTools: m.denies, Replay: m.replay, ReplayStrict: m.strict,
		})
	}
	if err != nil {
		return &runError{source: schema.SourceRunner, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code: "model_gateway_failed", Message: err.Error(),
		}}
	}
	m.redactor.Add(redact.RuleGiven, m.endpoint.Token())
	for _, r := range routes {
		m.names, m.held = append(m.names, r.Name), m.held || r.Key != ""
	}
	m.calls.Own(m.endpoint.Address())
	m.calls.Model(binding.Model{Known: m.recorder.Known, Unsettled: m.recorder.Unsettled, Opens: m.alone})
	m.path = model.NewPath(m.endpoint.Address(), routes)
	return nil
}

// equip points the command to the endpoint. traced means that event is called for each connection.
func (m *modelSide) equip(cmd *exec.Cmd, traced bool) {
	if m.endpoint == nil {
		return
	}
	if traced {
		m.recorder.Observed()
	}
	cmd.Env = m.endpoint.Environ(cmd.Env, !sandbox.Proxied(cmd.Env))
}

// door makes the endpoint reachable from a network namespace; nil if there is no endpoint.
func (m *modelSide) door() *sandbox.Door {
	if m.endpoint == nil {
		return nil
	}
	return &sandbox.Door{Address: m.endpoint.Address(), Serve: m.endpoint.Serve}
}

// event tells the recorder which process connects, and notes other ways to models.
func (m *modelSide) event(e *schema.KernelEvent, exe string) {
	if m.endpoint == nil {
		return
	}
	m.path.Event(e, exe)
	switch {
	case e.Value != m.endpoint.Address():
	case e.Kind == schema.KindConnect && e.Local != "":
		m.recorder.Connected(strings.Clone(e.Local), e.ExecID)
	case e.Kind == schema.KindFlow:
		m.recorder.Flow(e.BytesOut, e.BytesIn)
	}
}

// spent receives when the model budget is used up and the run must end. It is nil if that cannot happen.
func (m *modelSide) spent() <-chan struct{} {
	if m.endpoint == nil || !m.budget.End {
		return nil
	}
	return m.endpoint.Spent()
}

// close ends the endpoint. It is called when no process of the run is left and the kernel layer has its last event.
func (m *modelSide) close(res *schema.Result) error {
	if m.recorder == nil {
		return nil
	}
	if m.endpoint != nil {
		_ = m.endpoint.Close()
	}
	err := m.recorder.Close()
	res.Model = new(m.recorder.Totals())
	if m.endpoint != nil {
		res.LimitsHit = append(res.LimitsHit, m.endpoint.LimitsHit()...)
	}
	return err
}

// health reports how complete the record is, and how the command could reach models. h already has the kernel layer's
// claims.
func (m *modelSide) health(h *schema.ObservationHealth) {
	if m.endpoint == nil {
		if m.wanted {
			h.ModelLayer = schema.Absent
		}
		return
	}
	m.recorder.Health(h)
	m.path.Health(h, m.sealed())
	if n := m.recorder.Totals().ProviderFetches; n > 0 && h.ClosedBook != nil {
		h.ClosedBook.Open("", "provider_tools", fmt.Sprintf("the provider of the model searched or fetched for the "+
			"command, as %s shows", schema.Count(n, "line of the model layer", "lines of the model layer")), "")
	}
	if m.held && h.TamperResistance != schema.ResistsUser && h.TamperResistance != schema.ResistsSandbox {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "model", Code: "model_key_reachable",
			Message: "the command ran as the user that holds the provider's key, and could read it: from its file, " +
				"or from the environment of assay-run in /proc",
			Remedy: "run with --mode workspace-write or read-only, or, as root, with --user",
		})
	}
}

// newModelSide makes the endpoint of a run.
func newModelSide(log *evidence.Log, opt Options, spec *specfile.Spec, calls *evidence.Calls, sealed func() bool,
) *modelSide {
	m := &modelSide{
		wanted: spec.Model.On(), alone: spec.SDKEventLog == "" && spec.PolicyDecisionLog == "",
		sealed: sealed, log: log,
		calls: calls, redactor: opt.Redactor, dir: opt.ScratchDir,
		routes: func() ([]model.Route, error) { return routes(&spec.Model) }, prices: spec.Model.PriceList,
		budget:  spec.Model.Budget,
		denies:  spec.DeniesProviderTools(opt.Policy),
		digests: spec.Model.Bodies == schema.ModelBodiesNone,
	}
	if spec.Model.Replay != "" {
		m.replay, m.strict = opt.Replay, spec.Model.ReplayStrict
		m.routes = func() ([]model.Route, error) { return replayed(&spec.Model, opt.Replay), nil }
	}
	return m
}

// connections limits the endpoint's connections, since each uses several descriptors: its own, one to the provider,
// and files. 0 means no limit.
func connections() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 8*model.MaxConnections {
		return 0
	}
	return int(limit.Cur / 8)
}

// drained reports whether the peer has closed the connection and everything that it sent was read.
func drained(c syscall.Conn) (all bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		all = err == nil && n == 0 || err == unix.ECONNRESET
	})
	return all
}

// shimNames are the values of sdk_name that each shim writes. A shim without an entry may write any.
var shimNames = map[string][]string{
	specfile.ShimOpenAIAgents: {"openai-agents", "@openai/agents"},
	specfile.ShimGoogleGenAI:  {"google-genai", "@google/genai", "gemini-google-genai"},
	specfile.ShimClaudeCode:   {specfile.ShimClaudeCode},
	specfile.ShimCodex:        {specfile.ShimCodex},
	specfile.ShimGeminiCLI:    {specfile.ShimGeminiCLI},
	specfile.ShimOpenCode:     {specfile.ShimOpenCode},
	specfile.ShimQwenCode:     {specfile.ShimQwenCode},
	specfile.ShimPi:           {specfile.ShimPi},
}

// writes reports whether a line with this sdk_name may come from shim.
func writes(shim, name string) bool {
	names := shimNames[shim]
	return len(names) == 0 || slices.Contains(names, name)
}

// absLog makes the path of a log absolute, since the command may start in another directory.
func absLog(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("log %q: %w", path, err)
	}
	return abs, nil
}

// routes are those to the providers for which there is a key.
func routes(m *modelfile.Settings) (all []model.Route, err error) {
	providers, err := m.Providers()
	for _, p := range providers {
		all = append(all, model.Route{Provider: p})
	}
	return all, err
}

// replayed lists the routes of the bundle that is replayed.
func replayed(m *modelfile.Settings, c *tape.Cassette) (routes []model.Route) {
	for _, name := range c.Routes() {
		if at, err := modelfile.Upstream(name, ""); err == nil && slices.Contains(modelfile.Routes, name) {
			routes = append(routes, model.Route{Provider: modelfile.Provider{Name: name, Upstream: at},
				Replayed: m.Keys[name] != modelfile.KeyAgent})
		}
	}
	return routes
}
