package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/notify"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Diagnose tries what a run needs: a spool directory, a session cgroup, each limit, a pseudo-terminal, the kernel
// layer. spoolDir is empty if none could be determined. Diagnose leaves nothing behind.
func Diagnose(spoolDir string) Diagnosis {
	host := cgroup.Probe()
	spool := diagnoseSpool(spoolDir)
	d := Diagnosis{Platform: runtime.GOOS, Place: place.Here(), Works: spool.State == StateOK && host.Usable() == nil}
	d.Findings = append(d.Findings, spool, diagnoseCgroup(host))
	d.Findings = append(d.Findings, diagnoseLimits(host)...)
	d.Findings = append(d.Findings, diagnoseSignals(), diagnoseTerminal())
	ebpf := diagnoseKernel(host)
	d.Findings = append(d.Findings, ebpf, diagnoseNotify(ebpf.State == StateMissing))
	d.Findings = append(d.Findings, diagnoseSandbox(host)...)
	d.Fixes = fixes(d.Findings)
	return d
}

func diagnoseSpool(dir string) Finding {
	f := Finding{Subject: "run", Name: "spool", State: StateOK, Detail: dir}
	fail := func(err error) Finding {
		f.State = StateMissing
		f.Reasons = []schema.Reason{{Subject: "run", Code: "spool_unwritable", Message: err.Error(),
			Remedy: "choose a directory with --spool-dir, or set XDG_STATE_HOME"}}
		return f
	}
	if dir == "" {
		return fail(fmt.Errorf("neither XDG_STATE_HOME nor HOME is set, and the password database names " +
			"no home directory"))
	}
	at := dir
	for { // the nearest existing directory must be writable
		info, err := os.Stat(at)
		if err == nil && info.IsDir() {
			break
		}
		if parent := filepath.Dir(at); parent != at {
			at = parent
			continue
		}
		return fail(err)
	}
	probe, err := os.MkdirTemp(at, ".assay-run-doctor-*")
	if err != nil {
		return fail(err)
	}
	if err := os.Remove(probe); err != nil {
		return fail(err)
	}
	return f
}

func diagnoseCgroup(host *cgroup.Host) Finding {
	f := Finding{Subject: "cgroup", Name: "session", State: StateOK, Detail: string(host.Mode())}
	if host.Mode() == cgroup.None {
		f.State = StateDegraded
		f.Detail = "processes are kept together by descent"
	}
	f.Reasons = hostReasons(host)
	if err := host.Usable(); err != nil {
		f.State, f.Detail = StateMissing, ""
		f.Reasons = append(f.Reasons,
			schema.Reason{Subject: "cgroup", Code: "proc_unusable", Message: err.Error(), Remedy: remedyProc})
	}
	return f
}

func diagnoseLimits(host *cgroup.Host) []Finding {
	var findings []Finding
	for _, c := range host.Controllers() {
		f := Finding{Subject: "limits", Name: c.Name, State: StateOK, Detail: c.Hierarchy}
		switch {
		case !c.Available:
			f.State, f.Detail = StateMissing, ""
			f.Reasons = []schema.Reason{{Subject: "limits", Code: "controller_missing", Message: c.Reason,
				Remedy: c.Remedy}}
			if host.Mode() == cgroup.None {
				f.Reasons[0].Remedy = place.Here().Cgroups()
			}
		case c.Remedy != "":
			f.State, f.Reasons = StateDegraded, []schema.Reason{caveat(c)}
		}
		findings = append(findings, f)
	}
	return findings
}

func diagnoseSignals() Finding {
	f := Finding{Subject: "run", Name: "signals", State: StateOK, Detail: "ignored and blocked as by the caller"}
	if !cgroup.KeepsSignals() {
		f.State, f.Detail, f.Reasons = StateDegraded, "", []schema.Reason{signalsReset}
	}
	return f
}

func diagnoseTerminal() Finding {
	f := Finding{Subject: "terminal", Name: "pty", State: StateOK, Detail: "/dev/ptmx"}
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		f.State = StateMissing
		f.Reasons = []schema.Reason{{Subject: "terminal", Code: "pty_unavailable", Message: err.Error(),
			Remedy: "mount devpts on /dev/pts; until then runs in a terminal need --no-capture"}}
		return f
	}
	ptmx.Close()
	return f
}

// diagnoseKernel observes an empty session, as a run would.
func diagnoseKernel(host *cgroup.Host) Finding {
	hooks, forged, err := tryObserver(host)
	f := Finding{Subject: "kernel", Name: "ebpf", State: StateOK, Detail: "tracepoint tier"}
	var missing []string
	var why string
	for _, h := range hooks {
		f.Hooks = append(f.Hooks, HookFinding{Name: h.Name, Attached: h.Attached, Detail: h.Detail})
		if !h.Attached {
			missing = append(missing, h.Name)
			why = cmp.Or(why, h.Detail)
		}
	}
	switch {
	case err != nil:
		f.State, f.Detail, f.Reasons = StateMissing, "", kernelReasons(err)
	case len(missing) > 0:
		f.State, f.Reasons = StateDegraded, []schema.Reason{{Subject: "kernel", Code: kernel.CodeHookMissing,
			Message: fmt.Sprintf("runs do not have the hooks %s: %s", strings.Join(missing, ", "), why),
			Remedy:  "use Linux 6.1 or later"}}
		if strings.Contains(why, unix.EPERM.Error()) {
			f.Reasons[0].Remedy = place.Here().Observe()
		}
	case forged != "":
		f.State, f.Reasons = StateDegraded, []schema.Reason{{Subject: "kernel", Code: kernel.CodeTampered,
			Message: "the observer that runs share is not the one that this build would load: " + forged,
			Remedy:  "find out which process of root loaded it, and remove it: assay-run observe stop"}}
	}
	return f
}

// diagnoseNotify tries seccomp notification, and says when a run uses it. instead means that this host has no eBPF.
func diagnoseNotify(instead bool) Finding {
	f := Finding{Subject: "kernel", Name: "notify", State: StateOK,
		Detail: "sees attempts, not results; used with --kernel notify"}
	if err := notify.Probe(); err != nil {
		f.State, f.Detail, f.Reasons = StateMissing, "", kernelReasons(withRemedies(err))
		return f
	}
	switch {
	case notifies():
		if instead {
			f.Detail = "sees attempts, not results; used here because there is no eBPF"
		}
	default:
		f.Detail += ", under which sudo and other setuid programs do not work"
	}
	return f
}

// tryObserver returns for each hook whether a run would have it. forged is how the shared observer differs from this
// build's. The error is why a run would have no kernel layer.
func tryObserver(host *cgroup.Host) (_ []kernel.HookStatus, forged string, err error) {
	session, err := host.NewSession(specfile.New().RunID, cgroup.Limits{})
	if err != nil {
		return nil, "", &kernel.Unavailable{Reasons: []kernel.Reason{{Code: "containment_failed",
			Message: err.Error()}}}
	}
	defer session.Remove()
	observer, err := openObserver(context.Background(),
		kernel.Config{CgroupPath: session.Path(), RingBytes: schema.MinKernelBuffer})
	if err != nil {
		hooks, _ := kernel.Probe()
		for i := range hooks {
			hooks[i].Attached = false // a run would have none
		}
		return hooks, "", noRoom(host, err)
	}
	defer observer.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_ = observer.Read(func(*kernel.Event) error { return nil }, func(uint64) {})
	}()
	if observer.Shared() {
		list, _ := kernel.HostObservers()
		for _, o := range list {
			if o.Own {
				forged = o.Problem
			}
		}
	}
	err = observer.Stop()
	<-read
	return observer.Report().Hooks, forged, err
}

func kernelReasons(err error) []schema.Reason {
	var u *kernel.Unavailable
	if !errors.As(err, &u) {
		return []schema.Reason{{Subject: "kernel", Code: kernel.CodeLoadFailed, Message: err.Error()}}
	}
	var reasons []schema.Reason
	for _, why := range u.Reasons {
		reasons = append(reasons,
			schema.Reason{Subject: "kernel", Code: why.Code, Message: why.Message, Remedy: why.Remedy})
	}
	return reasons
}

// diagnoseSandbox builds each layer once, for a process that then exits.
func diagnoseSandbox(host *cgroup.Host) []Finding {
	dir := ""
	if session, err := host.NewSession(specfile.New().RunID, cgroup.Limits{}); err == nil {
		defer session.Remove()
		dir = session.Path()
	}
	layers, err := sandbox.Probe(dir)
	if err != nil {
		return []Finding{{Subject: "sandbox", Name: "layers", State: StateMissing,
			Reasons: []schema.Reason{{Subject: "sandbox", Code: "probe_failed", Message: err.Error()}}}}
	}
	var findings []Finding
	for _, l := range layers {
		f := Finding{Subject: "sandbox", Name: l.Layer, State: StateOK, Detail: sandbox.Detail(l)}
		if l.State != sandbox.Enforced {
			f.State, f.Detail = StateMissing, ""
			if l.State == sandbox.Degraded {
				f.State = StateDegraded
			}
			f.Reasons = []schema.Reason{{Subject: "sandbox", Code: "layer_" + l.State,
				Message: fmt.Sprintf("the layer %s is %s: %s", l.Layer, l.State, l.Reason), Remedy: sandbox.Remedy(l)}}
		}
		findings = append(findings, f)
	}
	return findings
}
