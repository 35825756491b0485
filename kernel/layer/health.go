package layer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Account is what [Health] judges by.
type Account struct {
	// Report is the observer's, taken after Read has returned; nil when
	// nothing was observed, and then Unavailable says why. A nil Unavailable
	// means that observation was switched off.
	Report      *kernel.Report
	Unavailable error
	// Foreign says that somebody else started the processes and may end them later.
	Foreign bool
	// Counts, Stats and LeftOut are the builder's and the surface's, after Close.
	Counts  schema.LayerCounts
	Stats   Stats
	LeftOut map[string]uint64
}

// Reason codes that this package adds to those of package kernel.
const (
	CodeOff             = "kernel_off"
	CodeNoSelfTest      = "self_test_missing"
	CodeLayerDropped    = "layer_write_failed"
	CodeMissedExits     = "exits_unseen"
	CodeStillAlive      = "processes_alive"
	CodeDetachedEarly   = "detached_early"
	CodeIOUring         = "io_uring_used"
	CodeIOUringUnknown  = "io_uring_unknown_operation"
	CodeIOUringCommands = "io_uring_commands"
	CodeHelper          = "kernel_helper_changed"
	CodeHelperStarted   = "kernel_helper_started"
	CodeOutsideTraced   = "outside_process_traced"
	CodeRunnerSignalled = "runner_signalled"
	CodeRunnerChanged   = "runner_changed"
	CodeKernelChanged   = "kernel_changed"
	CodeProcessJoined   = "process_moved_in"
	CodeCompatSyscalls  = "compat_syscalls_used"
	CodeAccount         = "account_does_not_add_up"
)

// Health fills in what h says about the kernel layer: kernel_layer,
// ringbuf_drops, network_protocol_coverage, network_endpoint_claim_scope,
// hooks, coverage, the account, left_out, and what is appended to reasons and
// notes. cgroup_correlation is only ever lowered.
//
// complete is earned: no reason of the observer's or of ours against it, and no blind spot used that can hide
// something. The
// v0 vocabulary has one word for everything between complete and absent, so a
// layer that is incomplete for another cause than drops is
// partial_ringbuf_drops as well, with 0 drops and the cause in reasons.
func Health(h *schema.ObservationHealth, a Account) {
	h.Hooks, h.Coverage = []schema.Hook{}, []schema.Coverage{}
	if a.Report == nil {
		absent(h, a.Unavailable)
		return
	}
	r := a.Report
	h.Coverage = exercised(coverage(a))
	reasons := observed(r, a)
	if len(reasons) == 0 {
		reasons = used(h.Coverage)
	}
	h.Reasons = append(h.Reasons, reasons...)
	h.SetKernelLayer(schema.Complete)
	if len(reasons) > 0 {
		h.SetKernelLayer(schema.PartialRingbufDrops)
	}
	h.RingbufDrops = 0
	for _, k := range r.Hooks {
		h.RingbufDrops += k.Dropped
		if x := hook(k, r); x != (schema.Hook{Name: x.Name}) {
			h.Hooks = append(h.Hooks, x)
		}
	}
	if r.LeftCgroup > 0 && h.CgroupCorrelation == schema.Clean {
		h.CgroupCorrelation = schema.Partial
	}
	if r.Tier != kernel.TierNotify {
		h.Model, h.Open = kernel.ModelDigest(), a.Stats.Open
		for _, o := range r.Unnamed {
			h.Open = append(h.Open, once(&o))
		}
	}
	h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope = network(h, a)
	if h.Layers == nil {
		h.Layers = make(map[string]schema.LayerCounts)
	}
	h.Layers[schema.LayerName(schema.KernelPath)] = a.Counts
	h.Kernel = account(h, a)
	h.LeftOut = a.LeftOut
	if r.Alone != "" {
		h.Notes = append(h.Notes,
			"observer_alone: the run loaded its own eBPF programs, which slow down every process on the host: "+r.Alone)
	}
	if n := a.Stats.UnnamedCgroups; n > 0 {
		h.Notes = append(h.Notes,
			fmt.Sprintf("cgroups_unnamed: %s gone before assay-run read their names, so what happened in them "+
				"has no container_id", schema.Count(n, "cgroup was", "cgroups were")))
	}
	if r.Shared {
		note := "observer_shared: the run used the observer that all runs of this build on the host share"
		if r.Found {
			note += ", and that was loaded by an earlier process of root"
		}
		h.Notes = append(h.Notes, note)
	}
	h.Notes = append(h.Notes,
		fmt.Sprintf("s2_kernel_capture: monitor_events=%d ringbuf_drops=%d network_protocol_coverage=%s "+
			"network_endpoint_claim_scope=%s",
			a.Counts.Written, h.RingbufDrops, h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope))
}

func absent(h *schema.ObservationHealth, why error) {
	h.SetKernelLayer(schema.Absent)
	h.RingbufDrops = 0
	h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope = schema.Absent, schema.NotApplicable
	h.Kernel, h.LeftOut = nil, nil
	var u *kernel.Unavailable
	switch {
	case why == nil:
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "kernel", Code: CodeOff, Message: "kernel observation was switched off",
				Remedy: "run with --kernel auto or --kernel require"})
	case errors.As(why, &u) && len(u.Reasons) > 0:
		h.Reasons = append(h.Reasons, convertReasons(u.Reasons)...)
	default:
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "kernel", Code: kernel.CodeLoadFailed, Message: why.Error()})
	}
}

func convertReasons(rs []kernel.Reason) (out []schema.Reason) {
	for _, r := range rs {
		out = append(out, schema.Reason{Subject: "kernel", Code: r.Code, Message: r.Message, Remedy: r.Remedy})
	}
	return out
}

// again is the remedy where nothing is known to be wrong with the host.
const again = "run the command again, and report a bug if it happens again"

// observed collects every reason why the layer is not complete.
func observed(r *kernel.Report, a Account) []schema.Reason {
	out := convertReasons(r.Reasons)
	add := func(bad bool, code, remedy, format string, args ...any) {
		if bad {
			out = append(out, schema.Reason{Subject: "kernel", Code: code, Message: fmt.Sprintf(format, args...),
				Remedy: remedy})
		}
	}
	s := a.Stats
	add(r.SelfTestNS == 0, CodeNoSelfTest, again, "no self-test has shown that the hooks fire")
	add(s.Dropped > 0, CodeLayerDropped,
		"make room on the disk that holds the spool, or raise the file size limit (ulimit -f)",
		"%s could not be written", schema.Count(s.Dropped, "event", "events"))
	add(s.MissedExits > 0, CodeMissedExits, again, "%s ended without being seen",
		schema.Count(s.MissedExits, "process", "processes"))
	alive := schema.Count(s.Alive, "process", "processes")
	add(s.Alive > 0 && a.Foreign, CodeDetachedEarly, "attach until they have ended: omit --until",
		"%s had not ended when assay-run detached, and what happened after that is not recorded", alive)
	add(s.Alive > 0 && !a.Foreign, CodeStillAlive, "run the command as a user that cannot write to other cgroups",
		"%s had not ended when observation stopped, and what happened after that is not recorded", alive)
	add(r.IOUringUnseen, CodeIOUring, "use Linux 6.4 or later",
		"the run used io_uring, and this kernel does not report io_uring requests")
	add(len(r.IOUringUnfollowed) > 0, CodeIOUringUnknown, "use a newer assay-run",
		"the run used io_uring in ways that this build cannot follow: operation %s", operations(r.IOUringUnfollowed))
	commands := r.Kinds[schema.KindIOUringOp]
	add(commands > 0 && len(r.IOUringUnfollowed) == 0, CodeIOUringCommands, "run the command with --deny-io-uring",
		"the run gave devices or other rings %s through io_uring, and what these did is not recorded",
		schema.Count(commands, "command", "commands"))
	x := s.Reach
	add(x.Helpers > 0, CodeHelper, "run the command as a user that cannot write to it, or with --mode workspace-write",
		"the run wrote to %s, which names a program that the kernel starts outside the run, where nothing records it",
		x.Helper)
	add(x.StartedTimes > 0, CodeHelperStarted, "look at that program; what it did is not recorded",
		"%s the kernel started %s outside the run, %s first",
		x.StartedFor, schema.Count(x.StartedTimes, "program", "programs"), x.Started)
	add(x.Joined > 0, CodeProcessJoined, "run the command as a user that cannot write to other cgroups",
		"the run moved %s from outside into its cgroup, process %d first: what happened before that is not recorded",
		schema.Count(x.Joined, "process", "processes"), x.JoinedFirst)
	add(x.KernelChanges > 0, CodeKernelChanged,
		"run the command as a user that has no such privilege, or with --mode workspace-write",
		"the run loaded code into the kernel, or could change its memory, %s, first by %s",
		schema.Count(x.KernelChanges, "time", "times"), x.KernelChange)
	add(x.TracedTimes > 0, CodeOutsideTraced, "run the command as another user, or with --mode workspace-write",
		"the run traced process %d, which is outside the run, or could write its memory", x.Traced)
	add(x.RunnerSignals > 0, CodeRunnerSignalled, "run the command as another user, or with --mode workspace-write",
		"the run sent the recorder, or its guard, %s, %s first", schema.Count(x.RunnerSignals, "signal", "signals"),
		schema.SignalName(uint32(x.RunnerSignal)))
	if x.RunnerActs > 0 {
		code := CodeRunnerChanged
		what := "changed, or may have changed, the limits, the scheduling or the files of the recorder"
		if x.RunnerAsked {
			code, what = CodeRunnerSignalled, "made the kernel send signals to the recorder, or changed its limits"
		}
		add(true, code, "run the command as another user, or with --mode workspace-write",
			"the run %s, by %s, first %s", what,
			schema.Count(x.RunnerActs, "call", "calls"), x.RunnerAct)
	}
	compat := s.ByKind[schema.KindCompatSyscall] + r.Undecoded
	if r.Tier == kernel.TierNotify {
		for _, k := range r.Hooks {
			if k.Hook == kernel.HookUnmodelled {
				compat += k.Fired
			}
		}
	}
	add(compat > 0, CodeCompatSyscalls, "run 64-bit programs only", "%s not decoded",
		schema.Count(compat, "system call used another instruction set, or is not known to this build, and was",
			"system calls used another instruction set, or are not known to this build, and were"))
	add(s.Received != r.Delivered, CodeAccount, again, "%s delivered, %d received",
		schema.Count(r.Delivered, "event was", "events were"), s.Received)
	add(s.Received+s.Added != s.Written+s.Filtered+s.Dropped, CodeAccount, again,
		"%d events and %d added ones gave %d lines, %d filtered, %d dropped",
		s.Received, s.Added, s.Written, s.Filtered, s.Dropped)
	return out
}

// used returns a reason for each blind spot that the run used and that can hide something. The layer then has every
// event that can be seen, but not all that was done.
func used(coverage []schema.Coverage) (out []schema.Reason) {
	for _, c := range coverage {
		for _, s := range c.KnownBlindSpots {
			if s.Used() {
				out = append(out, schema.Reason{Subject: "kernel", Code: schema.CodeBlindSpot,
					Message: "the run used what the recorder cannot see: " + s.Name, Remedy: s.Remedy()})
			}
		}
	}
	return out
}

func operations(ops []uint8) string {
	var names []string
	for _, op := range ops {
		names = append(names, kernel.OperationName(op))
	}
	return strings.Join(names, ", ")
}

// hook is a hook's state and account. complete depends on those that are required: attached and seen to fire. A hook
// that the self-test has no way to fire (a variant for another protocol family) must be attached, which the observer's
// reasons watch over, and has no fault.
func hook(k kernel.HookStatus, r *kernel.Report) schema.Hook {
	untestable := k.Attached && !k.SelfTested && r.SelfTestNS > 0
	for _, reason := range r.Reasons {
		if reason.Code == kernel.CodeHookSilent && strings.Contains(reason.Message, k.Name) ||
			reason.Code == kernel.CodeSelfTest {
			untestable = false
		}
	}
	fault := ""
	switch {
	case !k.Required || untestable:
	case !k.Attached:
		fault = schema.HookUnattached
	case !k.SelfTested:
		fault = schema.HookUntested
	}
	return schema.Hook{
		Name: k.Name, Fault: fault, Seen: k.Fired, Filtered: k.Filtered, Coalesced: k.Coalesced, Emitted: k.Emitted,
		Dropped:     k.Dropped,
		FailedReads: k.FailedReads, RecursionMisses: k.RecursionMisses,
	}
}

func account(h *schema.ObservationHealth, a Account) *schema.KernelAccount {
	r, s := a.Report, a.Stats
	k := &schema.KernelAccount{
		Received: r.Received, Decoded: r.Decoded, Malformed: r.Malformed, Drained: r.FinalRepeats + r.Endpoints,
		Added:   s.Added,
		Written: s.Written, Filtered: s.Filtered, Dropped: s.Dropped, Parts: r.Joined,
		SelfTest: r.SelfTest,
		Forks:    r.Forks + r.JoinedCgroup, Exits: r.Exits, LeftCgroup: r.LeftCgroup,
	}
	for _, x := range h.Hooks {
		k.Emitted += x.Emitted
	}
	return k
}

// live reports whether a hook was attached and is known to fire, by the
// self-test or by the run itself.
func live(r *kernel.Report, id kernel.HookID) bool {
	for _, k := range r.Hooks {
		if k.Hook == id {
			return k.Attached && (k.SelfTested || k.Fired > 0)
		}
	}
	return false
}

// hidden reports whether the run could have hidden which socket it used: a task that shares the descriptors
// of another can put another file in its place before the call has returned.
func hidden(a Account) bool { return a.Stats.Reach.SharedTables > 0 || a.Report.IOUringUsed }

// network judges what the hooks say of the network: which kinds of peers were
// watched, and whether the list of them is the set of all. That set may be
// claimed only of a complete layer that saw connects and datagrams, of a run that
// had no socket or tunnel whose peers no hook sees, no unix socket that anybody can
// send datagrams to, and got no descriptor from another process; otherwise it serves
// diagnosis.
func network(h *schema.ObservationHealth, a Account) (coverage, scope string) {
	if a.Report.Tier == kernel.TierNotify { // attempts, of which each is told with its address
		return schema.ConnectAndDatagram, schema.DiagnosticOnly
	}
	connect := live(a.Report, kernel.HookConnect4)
	datagram := live(a.Report, kernel.HookSendmsg4)
	switch {
	case connect && datagram:
		coverage = schema.ConnectAndDatagram
	case connect:
		coverage = schema.ConnectOnly
	case datagram:
		coverage = schema.DatagramPeerObserved
	default:
		return schema.Unknown, schema.Unknown
	}
	x := &a.Stats.Reach
	unseen := x.Carriers + x.MayCarry
	open := slices.ContainsFunc(h.Open, func(o schema.OpenCall) bool { return o.Opens(schema.SubjectHosts) })
	if connect && datagram && h.KernelLayer == schema.Complete && unseen == 0 && !open &&
		a.Report.NamedDatagrams == 0 && !a.Report.DescriptorsUnseen && !(a.Report.DescriptorsReceived && hidden(a)) {
		return coverage, schema.PeerSet
	}
	return coverage, schema.DiagnosticOnly
}
