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
	"github.com/assay-run/assay-run/schema/specfile"
)

// witness gathers the evidence of what the command does: what the agent reports, and what the kernel observes.
type witness struct {
	*agentSide
	*observation
	model     *modelSide
	enclosure witnessEnclosure
}

// witnessEnclosure is what the witness needs of the enclosure.
type witnessEnclosure interface {
	agentEnclosure
	observedCgroup
	// sealed reports whether the command's only ways out of its network are assay-run's own.
	sealed() bool
	// nest makes a cgroup below the agent's.
	nest(name string) (*cgroup.Nested, error)
	// sockets are assay-run's sockets that the agent connects to, as kernel events name them.
	sockets() []string
	// thawed waits until the session is not frozen.
	thawed(ctx context.Context) error

	// The observation's goroutine calls the rest.

	// event gets each kernel event once its tool call is known, with what its process executes.
	event(ev *kernel.Event, e *schema.KernelEvent, exe string)
	// starter returns the process that asked for a container before t: see layer.Options.
	starter(container string, t uint64) (pid uint32, at uint64)
	// movedV1 reports whether a cgroup of a v1 hierarchy is outside the session's, and for which controllers.
	movedV1(hierarchy, id uint64, path string) (controllers string, left bool)
}

// newWitness makes the evidence of a run. marked has the cgroups of checks; nil: there are no checks.
func newWitness(log *evidence.Log, opt Options, spec *specfile.Spec, at witnessEnclosure,
	marked *layer.Checks) *witness {
	agent := newAgentSide(log, opt, spec, at, at.nest)
	models := newModelSide(log, opt, spec, agent.calls, at.sealed)
	kernelLayer := newObservation(log, spec, at, layer.Options{
		Checks: marked, MovedV1: at.movedV1, Starter: at.starter, Wrote: agent.calls.Wrote,
		Bind: func(ev *kernel.Event, e *schema.KernelEvent, exe string) {
			agent.calls.Bind(ev, e)
			models.event(e, exe)
			at.event(ev, e, exe)
		},
	})
	return &witness{agentSide: agent, model: models, enclosure: at, observation: kernelLayer}
}

// listen starts to receive the agent's reports.
func (w *witness) listen(ctx context.Context) error {
	w.calls.Own(w.enclosure.sockets()...)
	return inOrder(ctx, w.agentSide.open, w.model.open)
}

// equip sets the variables that the command reports with, and points it to the model gateway.
func (w *witness) equip(cmd *exec.Cmd) {
	w.agentSide.equip(cmd)
	w.model.equip(cmd, w.traces())
}

// door makes the model gateway reachable from a network namespace; nil: there is none.
func (w *witness) door() *sandbox.Door { return w.model.door() }

// routes are the providers behind the model gateway.
func (w *witness) routes() []string { return w.model.names }

// spent receives when the model budget is used up and the run must end; nil: never.
func (w *witness) spent() <-chan struct{} { return w.model.spent() }

// observe starts the kernel layer, after a self-test.
func (w *witness) observe(ctx context.Context) error {
	if w.selfTests() {
		if err := w.enclosure.thawed(ctx); err != nil {
			return err
		}
	}
	return w.observation.open(ctx)
}

// close reads the remaining events, and then the rest of the agent's reports. It is called when no process of the run
// is left. The observer's objects in the kernel stay until free.
func (w *witness) close(res *schema.Result) error {
	return errors.Join(w.observation.close(res), w.agentSide.close(), w.model.close(res))
}

func (w *witness) health(h *schema.ObservationHealth) {
	w.agentSide.health(h)
	w.observation.health(h)
	w.model.health(h)
}
