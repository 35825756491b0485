package sandbox

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Explain says in a few lines what the profile means. It is for people.
func (p *Profile) Explain() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(what, value, rule string) { fmt.Fprintf(w, "%s\t%q\t%s\n", what, value, rule) }
	fmt.Fprintf(w, "mode\t%s\n", p.Mode)
	if p.Mode == Observe {
		fmt.Fprintf(w, "\tnothing is restricted\n")
		w.Flush()
		return b.String()
	}
	fmt.Fprintf(w, "a missing layer\t%s\n", map[string]string{Fail: "keeps the command from starting", Degrade: "is reported, and the command starts without it"}[p.OnUnavailable])
	for _, l := range []struct {
		what  string
		paths []Path
	}{
		{"may write", p.Write}, {"may not write", p.DenyWrite}, {"may not read", p.DenyRead}, {"may read, as an exception", p.AllowRead},
		{"has a private, empty", p.Private}, {"does not exist, so has no effect", p.Absent},
	} {
		for _, at := range l.paths {
			row(l.what, at.Path, at.Rule)
		}
	}
	fmt.Fprintf(w, "network\t%s\n", map[string]string{
		NetNone: "none", NetLoopback: "its own loopback device, nothing else", NetAllowlist: "through the proxy, to allowed domains", NetHost: "the host's, unrestricted",
	}[p.Network.Mode])
	for _, d := range p.Network.AllowedDomains {
		row("may connect to", d, "network.allowedDomains")
	}
	for _, d := range p.Network.DeniedDomains {
		row("may not connect to", d, "network.deniedDomains")
	}
	for _, port := range p.Network.LocalPorts {
		fmt.Fprintf(w, "can be reached by the host on port\t%d\n", port)
	}
	if p.Env.Pass != nil {
		fmt.Fprintf(w, "gets the variables\t%s\n", strings.Join(p.Env.Pass, " "))
	}
	if len(p.Env.Drop) > 0 {
		fmt.Fprintf(w, "does not get the variables\t%s\n", strings.Join(p.Env.Drop, " "))
	}
	if p.User != nil {
		fmt.Fprintf(w, "runs as\tuid %d, gid %d\n", p.User.UID, p.User.GID)
	}
	w.Flush()
	return b.String()
}
