package runner

import (
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
)

// askers are the processes that asked Docker to start a container of the run.
type askers struct {
	log *evidence.Log

	mu sync.Mutex
	of map[string][]asker // by the container's id, until it starts
	n  int
}

type asker struct {
	pid uint32
	at  uint64 // nanoseconds of CLOCK_BOOTTIME
}

// maxAskers bounds the requests whose containers have not started.
const maxAskers = 1 << 12

// ask remembers which process asks for a container, before the daemon gets the request.
func (a *askers) ask(pid uint32, c *engine.Container) {
	a.log.Event(schema.Event{
		Type: schema.ContainerStarting, PID: int(pid),
		Containers: []schema.Container{{ID: c.ID, Engine: engine.Docker, Name: c.Name, Image: c.Image}},
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if pid != 0 && a.n < maxAskers && kernel.HostPIDs() { // else the kernel layer has other numbers
		a.of[c.ID] = append(a.of[c.ID], asker{pid, uint64(bootTime())})
		a.n++
	}
}

// starter is [layer.Options].Starter: the last process that asked before that time.
func (a *askers) starter(id string, t uint64) (pid uint32, at uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.of[id]
	for len(list) > 0 && list[0].at <= t {
		pid, at = list[0].pid, list[0].at
		list, a.n = list[1:], a.n-1
	}
	if a.of[id] = list; len(list) == 0 {
		delete(a.of, id)
	}
	return pid, at
}
