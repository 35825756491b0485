package runner

import (
	"context"
	"errors"
	"os/exec"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// witness is the evidence of what the command does: what the agent reports, and what is observed of it.
type witness struct {
	*agentSide
	*observation
	model *modelSide
	home  home
}

// scene is what an observation has to know besides the kernel's events. Its goroutine asks.
type scene interface {
	// event sees each kernel event once its tool call is known.
	event(ev *kernel.Event, e *schema.KernelEvent)
	// starter returns the process that asked for a container before t: see layer.Options.
	starter(container string, t uint64) (pid uint32, at uint64)
	// movedV1 reports whether a cgroup of a v1 hierarchy is outside of the session's,
	// and then which controllers it is about.
	movedV1(hierarchy, id uint64, path string) (controllers string, left bool)
}

// home is where the agent lives and acts.
type home interface {
	quarters
	watched
	scene
	sealing
	nest(name string) (*cgroup.Nested, error)
	// sockets are those of ours that it connects to, as kernel events have them.
	sockets() []string
	// thawed waits until nobody has frozen it.
	thawed(ctx context.Context) error
}

// newWitness makes the evidence of a run. marked tells which cgroups are those of checks; nil: there are no checks.
func newWitness(log *evidence.Log, opt Options, spec *Spec, at home, marked *layer.Checks) *witness {
	agent := newAgentSide(log, opt, spec, at, at.nest)
	models := newModelSide(log, opt, spec, agent.calls, at)
	return &witness{agentSide: agent, model: models, home: at, observation: newObservation(log, spec, at, layer.Options{
		Checks: marked, MovedV1: at.movedV1, Starter: at.starter, Wrote: agent.calls.Wrote,
		Bind: func(ev *kernel.Event, e *schema.KernelEvent) {
			agent.calls.Bind(ev, e)
			models.event(e)
			at.event(ev, e)
		},
	})}
}

// listen lets the agent report.
func (w *witness) listen(ctx context.Context) error {
	w.calls.Own(w.home.sockets()...)
	return inOrder(ctx, w.agentSide.open, w.model.open)
}

// equip gives the command what it reports with, and the way to models.
func (w *witness) equip(cmd *exec.Cmd) {
	w.agentSide.equip(cmd)
	w.model.equip(cmd, w.traces())
}

// door is the way to models from a network namespace; nil: there is none.
func (w *witness) door() *sandbox.Door { return w.model.door() }

// spent receives when the run is to end because the model budget is spent; nil: never.
func (w *witness) spent() <-chan struct{} { return w.model.spent() }

// observe starts the kernel layer, after its self-test.
func (w *witness) observe(ctx context.Context) error {
	if w.selfTests() {
		if err := w.home.thawed(ctx); err != nil {
			return err
		}
	}
	return w.observation.open(ctx)
}

// close reads what is left in the kernel, and then the rest of what the agent reported. It is called when no
// process of the run is left. What the observer has in the kernel stays until free.
func (w *witness) close(res *schema.Result) error {
	return errors.Join(w.observation.close(res), w.agentSide.close(), w.model.close(res))
}

func (w *witness) health(h *schema.ObservationHealth) {
	w.agentSide.health(h)
	w.observation.health(h)
	w.model.health(h)
}
