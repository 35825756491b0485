package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// openGateway lets the agent in, under the policy that is in force from now on.
// A run that asks for neither goes on without a gateway, and says so.
func (a *agentSide) openGateway() error {
	r := a.run
	rules := r.opt.Policy
	if rules == nil && r.spec.Policy != "" {
		var err error
		if rules, err = policy.Load(r.spec.Policy); err != nil {
			return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{Code: "policy_unusable", Message: err.Error()}}
		}
	}
	cfg := gateway.Config{
		Run: &gateway.Recording{RunID: r.spec.RunID, Recorder: r.opt.Recorder, TurnsFile: r.opt.TurnsFile},
		Now: r.rec.elapsed, Policy: rules, Turns: r.spec.Turns, Observer: a, Warn: a.warned,
	}
	for _, s := range r.opt.Audit {
		cfg.Sinks = append(cfg.Sinks, gateway.NewSink(s.Name, s.Writer))
	}
	if r.spec.Gateway == GatewayWS {
		cfg.Token = rand.Text()
	}
	if m := r.opt.Host.Mode(); m == cgroup.Unified || m == cgroup.Hybrid {
		cfg.Join = newCallGroups(r.agent, a.correlator).join
	}
	g, err := gateway.New(cfg)
	if err == nil {
		a.gateway = g // from now on closed at the end
		err = a.listen()
	}
	if err == nil {
		return nil
	}
	if rules != nil || r.spec.Gateway == GatewayWS || len(r.opt.Audit) > 0 {
		return sandboxError("gateway_failed", err)
	}
	r.reasons = append(r.reasons, schema.Reason{
		Subject: "gateway", Code: "no_gateway", Message: err.Error(), Remedy: "the agent's logs, and the environment of its tools, tell of its calls instead",
	})
	return nil
}

// listen listens where the spec says. Who connects there does not act.
func (a *agentSide) listen() error {
	socket, err := a.gateway.Listen("unix", "")
	if err != nil {
		return err
	}
	if guard := a.run.guard; guard != nil { // a run that is only tested in part has none
		guard.Inherit(filepath.Dir(socket))
	}
	a.correlator.Own("unix:" + socket)
	if real, err := filepath.EvalSymlinks(filepath.Dir(socket)); err == nil {
		a.correlator.Own("unix:" + filepath.Join(real, filepath.Base(socket)))
	}
	if a.run.spec.Gateway != GatewayWS {
		return nil
	}
	url, err := a.gateway.Listen("ws", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.correlator.Own(strings.TrimPrefix(url, "ws://"))
	return nil
}

// warned is told by the gateway's goroutines what a reader should know.
func (a *agentSide) warned(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, message)
}

// CallDecided, CallStarted and CallEnded make it a [gateway.Observer].
func (a *agentSide) CallDecided(id, tool, decision string) {
	a.decidedOn(tool, decision)
	a.correlator.Decided(id, tool, decision)
}

func (a *agentSide) CallStarted(id, tool string) { a.correlator.Begin(id, tool, a.run.now) }

func (a *agentSide) CallEnded(id string) { a.correlator.End(id, a.run.now) }

// closeTimeout bounds what clients that are no processes of the run may still
// have to say.
const closeTimeout = 5 * time.Second

// closeGateway takes what clients that are gone have sent, and ends the session.
func (a *agentSide) closeGateway() {
	if a.gateway == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := a.gateway.Close(ctx); err != nil {
		a.accused = errors.Join(a.accused, fmt.Errorf("record what came through the gateway: %w", err))
	}
}
