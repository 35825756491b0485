package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// enclosure surrounds the command: the containment keeps its processes together, the confinement is its sandbox, and
// containers puts the containers that it starts into the run.
type enclosure struct {
	*containment
	*confinement
	*containers
}

func newEnclosure(log *evidence.Log, opt Options, spec *specfile.Spec, placed *evaluationPart) *enclosure {
	session := newContainment(log, opt, spec.Limits)
	inside := newConfinement(log, opt, spec, session.outlive, placed.tests)
	return &enclosure{session, inside, newContainers(log, spec, session, inside, placed)}
}

// open makes the enclosure before anything of the run starts in it.
func (e *enclosure) open(ctx context.Context) error {
	return inOrder(ctx,
		func(ctx context.Context) error { return e.containment.open(ctx, e.bySystemd) },
		e.confinement.open,
		e.containers.open,
	)
}

// shape sets the command's environment.
func (e *enclosure) shape(cmd *exec.Cmd, w reporting) error {
	if err := e.confinement.shape(cmd, e.Path(), w); err != nil {
		return err
	}
	e.containers.reach(w.door())
	e.containers.shape(cmd)
	return nil
}

// event looks for denials and containers in a kernel event.
func (e *enclosure) event(_ *kernel.Event, line *schema.KernelEvent, exe string) {
	e.denials.event(line, exe)
	e.containers.event(line)
}

// checkGroup makes the cgroup of a contract's check: see [checkEnclosure].
func (e *enclosure) checkGroup(
	ctx context.Context, name string, as *sandbox.User, fresh string, help func([]*os.File),
) (
	*cgroup.Group, contract.Group, error,
) {
	if err := e.thawed(ctx); err != nil {
		return nil, nil, err
	}
	group, err := e.NewGroup(name)
	if err != nil {
		return nil, nil, err
	}
	if fresh != "" {
		return group, e.strictGroup(group, as, fresh, help), nil
	}
	return group, e.group(group, as, help), nil
}

// close ends the enclosure's helpers, and starts to remove the session. release ends the rest.
func (e *enclosure) close(res *schema.Result, w reporting) error {
	return errors.Join(e.containers.close(), e.confinement.close(w), e.containment.close(res))
}

// health adds the enclosure's reasons. observed means that there is a kernel layer.
func (e *enclosure) health(h *schema.ObservationHealth, observed bool) {
	e.containment.health(h)
	e.confinement.health(h, observed)
	e.containers.health(h)
}
