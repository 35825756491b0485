//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Probe loads every program and attaches those that need no cgroup, for no
// session, and takes everything away again. It says of each hook whether it
// works here and, if not, why. The error is an [*Unavailable] when nothing does.
func Probe() ([]HookStatus, error) {
	l, loadErr := prepareAlone(64 << 10)
	out := make([]HookStatus, hookCount)
	if loadErr != nil {
		for h := range out {
			out[h] = HookStatus{Hook: HookID(h), Name: hooks[h].name, Required: hooks[h].required,
				Detail: loadErr.Error()}
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

// classify finds out why nothing can be loaded here.
func classify(err error) error {
	u := &Unavailable{Err: err}
	add := func(code, msg, remedy string) {
		u.Reasons = append(u.Reasons, Reason{code, msg, remedy})
	}
	if _, statErr := os.Stat("/sys/kernel/btf/vmlinux"); statErr != nil {
		add(CodeNoBTF, "the kernel offers no BTF type information (/sys/kernel/btf/vmlinux)",
			"use a kernel built with CONFIG_DEBUG_INFO_BTF=y and mount /sys")
	}
	switch {
	case errors.Is(err, unix.EMFILE):
		add(CodeLoadFailed, "this process has too few file descriptors for the programs",
			"raise the hard limit: ulimit -Hn 1024")
	case errors.Is(err, unix.ENFILE):
		add(CodeLoadFailed, "the host has no file descriptors left (fs.file-max)",
			"close programs that hold many files, or raise fs.file-max")
	case errors.Is(err, unix.ENOMEM):
		add(CodeLoadFailed, "there is too little memory for the programs",
			"free memory, or raise the memory limit of this process's cgroup")
	case errors.Is(err, unix.ENOSYS), noBPF():
		add(CodeBlocked, "the kernel, or a seccomp filter, does not know the bpf system call",
			"allow bpf() in the container's seccomp profile")
	case !capable(): // which error the library gives depends on which map it tries first
		add(CodeNotPermitted, "this process may not load eBPF programs",
			"run as root, or grant CAP_BPF and CAP_PERFMON (and CAP_NET_ADMIN for network events)")
	case !denied(err):
	case lockedDown() || unreadable(err):
		add(CodeLockdown, "the kernel is locked down for confidentiality, which forbids reading kernel memory",
			"boot with lockdown=integrity or none")
	default:
		add(CodeBlocked, "bpf() is refused although this process has the capabilities for it",
			"allow bpf() in the container's seccomp profile, and use the host's user namespace")
	}
	if len(u.Reasons) == 0 {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			add(CodeLoadFailed, "the kernel refused a program: "+firstLine(err.Error()),
				"please report this kernel's version")
		} else {
			add(CodeLoadFailed, "the programs could not be loaded: "+firstLine(err.Error()),
				"Linux 6.1 or later is needed")
		}
	}
	return u
}

// scarce reports whether an error is a lack of descriptors or memory. It says nothing about the kernel, so a set that
// lacks programs for this reason is not shared.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
		errors.Is(err, unix.EAGAIN)
}

// noBPF reports whether bpf(2) is not there at all. Which error the library gives
// then depends on what it tries first, such as that maps cannot be mapped.
func noBPF() bool {
	const unknown = 1 << 30 // no command: EINVAL where there is a bpf(2)
	_, _, errno := unix.Syscall(unix.SYS_BPF, unknown, 0, 0)
	return errno == unix.ENOSYS
}

// denied reports whether this process was refused. The verifier refuses programs with EACCES, too, and says why.
func denied(err error) bool {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) && len(ve.Log) > 0 {
		return unreadable(err)
	}
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// unreadable reports whether the verifier withheld the helpers that read kernel
// memory: for want of CAP_PERFMON, or under lockdown (bpf_tracing_func_proto in
// kernel/trace/bpf_trace.c). That is told by the error alone, since securityfs
// need not be mounted.
func unreadable(err error) bool {
	var ve *ebpf.VerifierError
	return errors.As(err, &ve) && slices.ContainsFunc(ve.Log, func(line string) bool {
		return strings.Contains(line, "unknown func bpf_probe_read") ||
			strings.Contains(line, "cannot use helper bpf_probe_read")
	})
}

// capable reports whether this process has what bpf(2) asks for: CAP_SYS_ADMIN,
// or CAP_BPF and CAP_PERFMON.
func capable() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	return has(unix.CAP_SYS_ADMIN) || has(unix.CAP_BPF) && has(unix.CAP_PERFMON)
}

// lockedDown reports lockdown=confidentiality.
func lockedDown() bool {
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(string(b), "[confidentiality]")
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
