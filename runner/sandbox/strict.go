package sandbox

import "slices"

// Strict is p for a command that is to find nothing of what an earlier one left: its
// own network, processes and directories for temporary files. fresh is a directory for
// it, which it may write; it must exist. Network mode none stays none.
func (p *Profile) Strict(fresh string) *Profile {
	strict := *p
	strict.PIDs, strict.fresh, strict.OnUnavailable = true, fresh, Fail
	strict.Network.AllowedDomains, strict.Network.DeniedDomains, strict.Network.LocalPorts = nil, nil, nil
	if strict.Network.Mode != NetNone {
		strict.Network.Mode = NetLoopback
	}
	if strict.Mode != Observe {
		strict.Write = append(slices.Clone(p.Write), Path{fresh, "strict"})
	}
	return &strict
}

// ForCheck is p for a check of a contract. No port is forwarded to a check: while checks run, the
// command's ports may still be in use.
func (p *Profile) ForCheck() *Profile {
	check := *p
	check.Network.LocalPorts = nil
	return &check
}

// Temporary are the directories for temporary files that Strict covers. Not every host
// has all of them.
var Temporary = []string{"/tmp", "/var/tmp", "/dev/shm"}
