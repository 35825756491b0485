//go:build linux && (amd64 || arm64)

package kernel

import "github.com/cilium/ebpf/link"

// Probe loads every program and attaches those that need no cgroup, for no
// session, and takes everything away again. It says of each hook whether it
// works here and, if not, why. The error is an [*Unavailable] when nothing does.
func Probe() ([]HookStatus, error) {
	l, loadErr := prepareAlone(64 << 10)
	out := make([]HookStatus, hookCount)
	if loadErr != nil {
		for h := range out {
			out[h] = HookStatus{Hook: HookID(h), Name: hooks[h].name, Required: hooks[h].required, Detail: loadErr.Error()}
		}
		return out, loadErr
	}
	defer l.close()
	l.own = map[string]link.Link{}
	for name := range cgroupPrograms {
		if l.progs[name] != nil { // loading is what can fail; a cgroup comes with the run
			l.own[name] = nil
		}
	}
	for h := range out {
		out[h] = l.status(HookID(h))
	}
	return out, nil
}
