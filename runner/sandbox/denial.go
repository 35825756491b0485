package sandbox

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Operations, as denials name them.
const (
	OpRead    = "read"
	OpWrite   = "write"
	OpExec    = "exec"
	OpConnect = "connect"
	OpBind    = "bind"
	OpSignal  = "signal"
	OpPtrace  = "ptrace"
)

// Attempt is an operation of the command that the kernel refused.
type Attempt struct {
	Op string
	// Target is a path, or an endpoint: ip:port, [ip6]:port, unix:/path,
	// unix:@abstract. A path that ends with a slash is of a name in that directory.
	Target string
	Errno  int
}

// Rules of a profile that come from no line of a policy.
const (
	RuleMode        = "mode"         // it is below nothing that may be written
	RuleNetworkMode = "network.mode" // it is outside of the network namespace
)

// Denies tells which rule of the profile forbids what failed, if any does.
// If the file's mode forbids it too, it still counts as the policy's denial.
func (p *Profile) Denies(a Attempt) (rule string, denied bool) {
	refused := slices.Contains([]int{int(syscall.EACCES), int(syscall.EPERM), int(syscall.EROFS), int(syscall.EXDEV),
		int(syscall.EBUSY)}, a.Errno)
	switch a.Op {
	case OpConnect, OpBind:
		return p.deniesEndpoint(a, refused)
	case OpSignal, OpPtrace: // of processes outside
		return RuleMode, refused
	case OpRead, OpExec:
		return p.deniesRead(a.Target, refused)
	case OpWrite:
		if rule, denied := p.deniesRead(a.Target, refused); denied {
			return rule, true
		}
		if !refused || p.open || !strings.HasPrefix(a.Target, "/") || a.Target == "/dev/null" {
			return "", false
		}
		for _, d := range p.DenyWrite {
			if Below(a.Target, d.Path) || Below(d.Path, a.Target) { // what is around it cannot be moved away
				return d.Rule, true
			}
		}
		if a.Errno == int(syscall.EXDEV) || a.Errno == int(syscall.EBUSY) || p.writable(a.Target) {
			return "", false
		}
		return RuleMode, true
	}
	return "", false
}

func (p *Profile) deniesRead(path string, refused bool) (string, bool) {
	if !refused || slices.ContainsFunc(p.AllowRead, func(a Path) bool { return Below(path, a.Path) }) {
		return "", false
	}
	for _, d := range p.DenyRead {
		if Below(path, d.Path) {
			return d.Rule, true
		}
	}
	return "", false
}

func (p *Profile) deniesEndpoint(a Attempt, refused bool) (string, bool) {
	if path, ok := strings.CutPrefix(a.Target, "unix:"); ok {
		hidden := slices.ContainsFunc(append(slices.Clone(p.sockets), p.Private...), func(s Path) bool {
			return Below(path, s.Path)
		})
		if hidden && (refused || a.Errno == int(syscall.ENOENT) || a.Errno == int(syscall.ECONNREFUSED)) {
			return "sockets", true
		}
		if strings.HasPrefix(path, "@") && (refused || a.Errno == int(syscall.ECONNREFUSED)) {
			return "sockets", a.Op == OpConnect && p.Mode != Observe
		}
		return "", false
	}
	if p.Network.Mode == NetHost {
		return "", false
	}
	at, err := netip.ParseAddrPort(a.Target)
	if err != nil {
		return "", false
	}
	unreachable := a.Errno == int(syscall.ENETUNREACH) || a.Errno == int(syscall.EHOSTUNREACH) ||
		a.Errno == int(syscall.EADDRNOTAVAIL)
	if !at.Addr().Unmap().IsLoopback() || p.Network.Mode == NetNone {
		return RuleNetworkMode, refused || unreachable
	}
	return "", false
}

// Rules are the profile's rules, each once: a rule's id is its place here,
// counted from 1.
func (p *Profile) Rules() []string {
	rules := []string{RuleMode, RuleNetworkMode, "sockets", "evidence", "protected"}
	for _, l := range [][]Path{p.DenyRead, p.DenyWrite} {
		for _, d := range l {
			if !slices.Contains(rules, d.Rule) {
				rules = append(rules, d.Rule)
			}
		}
	}
	return rules
}

// RuleID is a rule's id, 0 if the profile does not have the rule.
func (p *Profile) RuleID(rule string) uint64 {
	return uint64(slices.Index(p.Rules(), rule) + 1)
}

// Reach keeps the runner's files, sockets and logs reachable, whatever else the
// profile hides. Call it before the profile is applied.
func (p *Profile) Reach(paths ...string) {
	for _, path := range paths {
		p.AllowRead = append(p.AllowRead, Path{path, ruleReach})
		p.sockets = slices.DeleteFunc(p.sockets, func(s Path) bool { return s.Path == path })
	}
}

const ruleReach = "runner"
