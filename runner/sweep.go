package runner

import (
	"context"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/internal/rundir"
)

// sweepTime limits how long a sweep waits for Docker daemons.
const sweepTime = 30 * time.Second

// Sweep ends what killed runs left and their guards did not end: processes, Docker containers, cgroups, and socket
// directories. Each run does the same when it starts.
func Sweep() []cgroup.Swept {
	swept, _ := cgroup.Probe().SweepAll(endContainers(context.Background())) // a run reports what cannot be swept
	rundir.Sweep()
	return swept
}

// endContainers ends the containers of a dead run, so that the daemon at the socket does not restart them. The run
// left the socket's path in a note. It gives up when ctx ends.
func endContainers(ctx context.Context) func(parent, socket string) {
	var by time.Time
	return func(parent, socket string) {
		if by.IsZero() {
			by = time.Now().Add(sweepTime)
		}
		ctx, cancel := context.WithDeadline(ctx, by)
		defer cancel()
		_, _ = engine.End(ctx, socket, parent)
	}
}
