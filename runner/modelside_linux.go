package runner

import (
	"context"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// modelSide is the endpoint between the command and the models that it asks. Without a gateway it does nothing.
type modelSide struct {
	log      *evidence.Log
	calls    *evidence.Calls
	redactor *redact.Redactor
	dir      string
	routes   func() ([]model.Route, error)
	prices   func() (*model.Prices, error)
	budget   model.Budget
	replay   *tape.Cassette // nil: the providers answer
	strict   bool
	denies   bool // tools that providers run
	digests  bool
	wanted   bool
	alone    bool // nobody else says when calls begin
	home     sealing

	held     bool // a route has a key of ours
	endpoint *model.Endpoint
	recorder *model.Recorder
	path     *model.Path
}

// sealing is where the agent lives, as far as the model gateway asks.
type sealing interface {
	// sealed reports whether it had no way out but the doors of ours.
	sealed() bool
}

// newModelSide makes the endpoint of a run.
func newModelSide(log *evidence.Log, opt Options, spec *Spec, calls *evidence.Calls, at sealing) *modelSide {
	m := &modelSide{
		wanted: spec.Model.On(), alone: spec.SDKEventLog == "" && spec.PolicyDecisionLog == "", home: at, log: log,
		calls: calls, redactor: opt.Redactor, dir: opt.ScratchDir,
		routes: spec.modelRoutes, prices: spec.modelPrices,
		budget:  spec.Model.Budget,
		denies:  opt.Policy.DeniesProviderTools(),
		digests: spec.Model.Bodies == schema.ModelBodiesNone,
	}
	if spec.Model.Replay != "" {
		m.replay, m.strict = opt.Replay, spec.Model.ReplayStrict
		m.routes = func() ([]model.Route, error) { return spec.Model.replayed(opt.Replay), nil }
	}
	return m
}

// open starts the endpoint.
func (m *modelSide) open(context.Context) error {
	routes, err := m.routes()
	if err == nil && len(routes) == 0 {
		return nil
	}
	var prices *model.Prices
	if err == nil {
		prices, err = m.prices()
	}
	if err == nil {
		m.recorder = model.NewRecorder(model.RecorderConfig{Log: m.log, Calls: m.calls, Digests: m.digests,
			Prices: prices, Replay: m.replay})
		m.endpoint, err = model.Listen(model.Config{
			Routes: routes, Now: m.log.Now, Record: m.recorder, Dir: m.dir, Drained: drained,
			Budget: m.budget, Prices: prices, Connections: connections(),
			DenyProviderTools: m.denies, Replay: m.replay, ReplayStrict: m.strict,
		})
	}
	if err != nil {
		return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "model_gateway_failed", Message: err.Error(),
		}}
	}
	m.redactor.Add(redact.RuleGiven, m.endpoint.Token())
	for _, r := range routes {
		m.held = m.held || r.Key != ""
	}
	m.calls.Own(m.endpoint.Address())
	m.calls.Model(binding.Model{Known: m.recorder.Known, Unsettled: m.recorder.Unsettled, Opens: m.alone})
	m.path = model.NewPath(m.endpoint.Address(), routes)
	return nil
}

// connections is how many connections the endpoint may have at a time, each with another to the provider and with
// files: others need descriptors too. 0: as many as it likes.
func connections() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 8*model.MaxConnections {
		return 0
	}
	return int(limit.Cur / 8)
}

// drained reports whether the other end of a connection is closed and all that it sent was read.
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

// equip leads the command to the endpoint. traced tells that event is called for each connection.
func (m *modelSide) equip(cmd *exec.Cmd, traced bool) {
	if m.endpoint == nil {
		return
	}
	if traced {
		m.recorder.Observed()
	}
	cmd.Env = m.endpoint.Environ(cmd.Env, !sandbox.Proxied(cmd.Env))
}

// door is the endpoint's way into a network namespace; nil: there is no endpoint.
func (m *modelSide) door() *sandbox.Door {
	if m.endpoint == nil {
		return nil
	}
	return &sandbox.Door{Address: m.endpoint.Address(), Serve: m.endpoint.Serve}
}

// event tells the record which process connects, and follows the ways to models.
func (m *modelSide) event(e *schema.KernelEvent) {
	if m.endpoint == nil {
		return
	}
	m.path.Event(e)
	switch {
	case e.Value != m.endpoint.Address():
	case e.Kind == schema.KindConnect && e.Local != "":
		m.recorder.Connected(strings.Clone(e.Local), e.ExecID)
	case e.Kind == schema.KindFlow:
		m.recorder.Flow(e.BytesOut, e.BytesIn)
	}
}

// spent receives when the budget is spent and the run is to end for it. It is nil if that never is.
func (m *modelSide) spent() <-chan struct{} {
	if m.endpoint == nil || !m.budget.End {
		return nil
	}
	return m.endpoint.Spent()
}

// close ends the endpoint, once nothing of the run is left and the kernel layer has seen its last event.
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

// health says how much the record has, and how the command could reach models. h has the kernel layer's claims.
func (m *modelSide) health(h *schema.ObservationHealth) {
	if m.endpoint == nil {
		if m.wanted {
			h.ModelLayer = schema.Absent
		}
		return
	}
	m.recorder.Health(h)
	m.path.Health(h, m.home.sealed())
	if m.held && h.TamperResistance != schema.ResistsUser && h.TamperResistance != schema.ResistsSandbox {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "model", Code: "model_key_reachable",
			Message: "the command ran as the user that holds the provider's key, and could read it: from its file, " +
				"or from the environment of assay-run in /proc",
			Remedy: "run with --mode workspace-write or read-only, or, as root, with --user",
		})
	}
}
