package runner

import (
	"context"
	"os/exec"
	"strings"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/model"
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
	digests  bool

	held     bool // a route has a key of ours
	endpoint *model.Endpoint
	recorder *model.Recorder
}

// newModelSide makes the endpoint of a run.
func newModelSide(log *evidence.Log, opt Options, spec *Spec, calls *evidence.Calls) *modelSide {
	return &modelSide{
		log: log, calls: calls, redactor: opt.Redactor, dir: opt.ScratchDir, routes: spec.modelRoutes,
		digests: spec.Model.Bodies == schema.ModelBodiesNone,
	}
}

// open starts the endpoint.
func (m *modelSide) open(context.Context) error {
	routes, err := m.routes()
	if err == nil && len(routes) == 0 {
		return nil
	}
	if err == nil {
		m.recorder = model.NewRecorder(model.RecorderConfig{Log: m.log, Digests: m.digests})
		m.endpoint, err = model.Listen(model.Config{Routes: routes, Now: m.log.Now, Record: m.recorder, Dir: m.dir})
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
	return nil
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

// event tells the record which process connects.
func (m *modelSide) event(e *schema.KernelEvent) {
	if m.endpoint == nil || e.Kind != schema.KindConnect || e.Local == "" || e.Value != m.endpoint.Address() {
		return
	}
	m.recorder.Connected(strings.Clone(e.Local), e.ExecID)
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
	return err
}

func (m *modelSide) health(h *schema.ObservationHealth) {
	if m.recorder == nil {
		return
	}
	m.recorder.Health(h)
	if m.held && h.TamperResistance != schema.ResistsUser && h.TamperResistance != schema.ResistsSandbox {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "model", Code: "model_key_reachable",
			Message: "the command ran as the user that holds the provider's key, and could read it: from its file, " +
				"or from the environment of assay-run in /proc",
			Remedy: "run with --mode workspace-write or read-only, or, as root, with --user",
		})
	}
}
