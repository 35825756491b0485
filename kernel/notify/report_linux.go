//go:build amd64 || arm64

package notify

import (
	"fmt"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Report returns the account so far.
func (o *Observer) Report() kernel.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := kernel.Report{Tier: kernel.TierNotify, Delivered: o.delivered, Threads: o.threads, SelfTestNS: 1}
	attached := o.listener >= 0 || len(o.table.byPID) == 0
	native, _ := calls()
	present := map[kernel.HookID]bool{kernel.HookExec: true, kernel.HookFork: true, kernel.HookCompat: true, kernel.HookFlush: true}
	for _, c := range native {
		present[c.Hook] = true
	}
	for h := range kernel.HookID(hooks) {
		if !present[h] {
			continue
		}
		s := kernel.HookStatus{Hook: h, Name: "seccomp/" + hookNames[h], Attached: attached, SelfTested: h == kernel.HookExec}
		s.Filtered, s.Coalesced, s.Emitted = o.filtered[h], o.coalesced[h], o.emitted[h]
		s.Fired = s.Filtered + s.Coalesced + s.Emitted
		r.Repeats += s.Coalesced
		r.Received += s.Emitted
		r.Hooks = append(r.Hooks, s)
	}
	r.Decoded = r.Received
	for k := range r.Kinds {
		r.Kinds[k] = o.kinds[k]
	}
	r.Forks, r.Exits = o.kinds[kernel.KindFork]-o.threads, o.kinds[kernel.KindExit]
	r.Claimed, r.Carriers = r.Received, o.carriers
	r.Unreadable, r.DescriptorsPassed = o.unreadable, o.inherited
	r.Reasons = o.reasons(&r)
	return r
}

// hookNames names the hooks that notifications are counted for.
var hookNames = map[kernel.HookID]string{
	kernel.HookExec: "exec", kernel.HookFork: "fork", kernel.HookExit: "exit", kernel.HookOpen: "open", kernel.HookExecFailed: "exec_failed",
	kernel.HookRename: "rename", kernel.HookUnlink: "unlink", kernel.HookLink: "link", kernel.HookMkdir: "mkdir", kernel.HookTruncate: "truncate",
	kernel.HookAttr: "attributes", kernel.HookChdir: "chdir", kernel.HookSocket: "socket", kernel.HookPrivilege: "privilege", kernel.HookCompat: "compat", kernel.HookFlush: "repeats",
}

// reasons say why the layer is less than complete: always because of the tier, and because
// of what happened in this run.
func (o *Observer) reasons(r *kernel.Report) (out []kernel.Reason) {
	add := func(is bool, code, remedy, format string, args ...any) {
		if is {
			out = append(out, kernel.Reason{Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy})
		}
	}
	const better = "run where eBPF is allowed: assay-run doctor says what is missing"
	add(true, CodeTier, better, "calls were observed by seccomp notification, before they were made: their results are unknown, and another thread may have changed their arguments")
	add(o.hello.privilege, CodePrivileges, "run as root with CAP_SYS_ADMIN, or where eBPF is allowed", "no-new-privs was set for the command, so sudo and other setuid programs did not raise privileges")
	add(o.broken != nil, CodeShim, "run the command again, and report a bug if it happens again", "the observer ended before the run, and calls failed from then on: %v", o.broken)
	add(o.unreadable > 0, CodeUnread, better, "the arguments of %s could not be read", schema.Count(o.unreadable, "call", "calls"))
	add(o.vanished > 0, CodeVanished, "", "%s", schema.Count(o.vanished, "call was of a task that was killed before the observer knew whose it was", "calls were of tasks that were killed before the observer knew whose they were"))
	add(r.Kinds[kernel.KindIOUring] > 0 && !o.cfg.DenyIOUring, CodeIOUring, "run with --deny-io-uring", "the run set up io_uring, whose requests are not observed")
	add(o.nested > 0, CodeNested, "run that program outside of assay-run, or with --kernel ebpf", "a program of the run asked for a seccomp listener of its own %d times, which the kernel refuses in a notified run", o.nested)
	return out
}
