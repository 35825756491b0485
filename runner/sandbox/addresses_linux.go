package sandbox

import (
	"net/netip"

	"github.com/assay-run/assay-run/runner/sandbox/internal/sockaddr"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Blocked is a connect, a send or a bind that BPF programs on the cgroup denied, or a connection to the unix socket of
// a process outside.
type Blocked struct {
	Op   string // OpConnect or OpBind
	Addr netip.AddrPort
	// Socket is the path of a unix socket; empty: Addr is the address.
	Socket string
	// Time is CLOCK_BOOTTIME, in nanoseconds.
	Time uint64
}

// watch is the layer of cgroup programs that check addresses.
type watch struct {
	cgroup  string
	blocked func(Blocked)
	guard   *sockaddr.Guard
	untold  uint64
}

// start attaches the programs, and returns the layer's report. In a network namespace of its own, the command may
// bind any address. Without one, an allowlist has no proxy, so nothing is attached.
func (w *watch) start(mode string, namespace bool) []Layer {
	if w.guard != nil {
		w.stop() // detach the programs of an attempt with namespaces
	}
	if w.cgroup == "" || mode == sandboxfile.NetHost || mode == sandboxfile.NetAllowlist && !namespace {
		return nil
	}
	rules := sockaddr.Rules{Loopback: mode != sandboxfile.NetNone, BindAny: namespace}
	var err error
	w.guard, err = sockaddr.Attach(w.cgroup, rules, func(d sockaddr.Denial) {
		op := OpConnect
		if d.Bind {
			op = OpBind
		}
		if w.blocked != nil {
			w.blocked(Blocked{Op: op, Addr: d.Addr, Time: d.Time})
		}
	})
	if err != nil {
		return []Layer{layerError(LayerCgroupBPF, err)}
	}
	return []Layer{{Layer: LayerCgroupBPF, State: Enforced}}
}

func (w *watch) stop() {
	if w.guard == nil {
		return
	}
	n, _ := w.guard.Close()
	w.untold += n.Lost
	w.guard = nil
}
