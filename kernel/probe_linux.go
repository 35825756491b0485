//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"

	"github.com/cilium/ebpf/link"
)

// Probe loads every program and attaches those that need no cgroup, for no
// session, and takes everything away again. It says of each hook whether it
// works here and, if not, why. The error is an [*Unavailable] when nothing does.
func Probe() ([]HookStatus, error) {
	pre := takePreloaded()
	spec := <-pre.spec
	if spec.err != nil {
		return nil, fmt.Errorf("read the embedded programs: %w", spec.err)
	}
	l := &loaded{links: map[string]link.Link{}, failed: map[string]error{}, cpus: 1}
	if err := l.configure(spec.CollectionSpec, Config{RingBytes: 64 << 10}, 0); err != nil {
		return nil, err
	}
	defer l.close()
	loadErr := l.create(spec.CollectionSpec, <-pre.types)
	out := make([]HookStatus, hookCount)
	if loadErr != nil {
		loadErr = classify(loadErr)
		for h := range out {
			out[h] = HookStatus{Hook: HookID(h), Name: hooks[h].name, Required: hooks[h].required, Detail: loadErr.Error()}
		}
		return out, loadErr
	}
	for _, a := range attachments {
		p := l.coll.Programs[a.prog]
		if p == nil {
			continue
		}
		if a.cgroup { // loading is what can fail; a cgroup comes with the run
			l.links[a.prog] = nil
			continue
		}
		var err error
		if l.links[a.prog], err = link.AttachTracing(link.TracingOptions{Program: p}); err != nil {
			delete(l.links, a.prog)
			l.failed[a.prog] = err
		}
	}
	for h := range out {
		out[h] = l.status(HookID(h))
	}
	return out, nil
}
