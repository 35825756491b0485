//go:build amd64 || arm64

package notify

import (
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// hooks bounds kernel.HookID.
const hooks = 64

// tally counts what became of the notifications.
type tally struct {
	emitted, filtered, coalesced [hooks]uint64
	kinds                        [256]uint64 // as kernel.Report has them
	threads                      uint64
	// vanished are calls of tasks that were killed before their process was known, unreadable those whose arguments
	// could not be read, nested those that ask for a listener.
	vanished, unreadable, nested uint64
}

// count counts an event, and what the queue did with it.
func (t *tally) count(e *kernel.Event, how int) {
	switch {
	case e.Kind == schema.KindFork && e.Thread:
		t.threads++
	case e.Kind == schema.KindPrivileged && e.Syscall == "seccomp" && e.Arg(0) == unix.SECCOMP_SET_MODE_FILTER &&
		e.Flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0:
		t.nested++
	}
	if how == added {
		t.emitted[e.Hook]++
	} else {
		t.coalesced[e.Hook]++
	}
	if how == repeated {
		t.emitted[kernel.HookFlush]++
	}
	if how != counted {
		t.kinds[e.Kind]++
	}
}

// filter counts a notification that no event tells of.
func (t *tally) filter(hook kernel.HookID) { t.filtered[hook]++ }

// report adds the counts to a report. attached: the listener is served.
func (t *tally) report(r *kernel.Report, attached bool) {
	native, _ := calls()
	present := map[kernel.HookID]bool{kernel.HookExec: true, kernel.HookFork: true, kernel.HookUnmodelled: true,
		kernel.HookFlush: true}
	for _, c := range native {
		present[c.Hook] = true
	}
	for h := range kernel.HookID(hooks) {
		if !present[h] {
			continue
		}
		s := kernel.HookStatus{Hook: h, Name: "seccomp/" + hookNames[h], Attached: attached,
			SelfTested: h == kernel.HookExec}
		s.Filtered, s.Coalesced, s.Emitted = t.filtered[h], t.coalesced[h], t.emitted[h]
		s.Fired = s.Filtered + s.Coalesced + s.Emitted
		r.Repeats += s.Coalesced
		r.Received += s.Emitted
		r.Hooks = append(r.Hooks, s)
	}
	r.Decoded, r.Claimed = r.Received, r.Received
	for k := range r.Kinds {
		r.Kinds[k] = t.kinds[k]
	}
	r.Threads, r.Unreadable = t.threads, t.unreadable
	r.Forks, r.Exits = t.kinds[schema.KindFork]-t.threads, t.kinds[schema.KindExit]
}

// hookNames names the hooks that notifications are counted for.
var hookNames = map[kernel.HookID]string{
	kernel.HookExec: "exec", kernel.HookFork: "fork", kernel.HookExit: "exit", kernel.HookOpen: "open",
	kernel.HookExecFailed: "exec_failed",
	kernel.HookRename:     "rename", kernel.HookUnlink: "unlink", kernel.HookLink: "link", kernel.HookMkdir: "mkdir",
	kernel.HookTruncate: "truncate",
	kernel.HookAttr:     "attributes", kernel.HookChdir: "chdir", kernel.HookSocket: "socket",
	kernel.HookPrivilege: "privilege", kernel.HookUnmodelled: "compat", kernel.HookFlush: "repeats",
}
