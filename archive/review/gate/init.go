package gate

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/archive/review"
	"github.com/assay-run/assay-run/archive/review/claim"
)

// Init writes a rule file that the bundle, a good run, passes. Rules that its
// health does not support are left as comments.
func Init(b *review.Bundle) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "# Rules for assay-run gate, from the run %s.\n# Widen or narrow them; \"assay-run gate --help\" lists all rules.\nrules:\n", b.RunID())
	s := &subject{Bundle: b}
	rule := func(about claim.Subject, text string) {
		if gaps := s.gaps(about); len(gaps) > 0 {
			fmt.Fprintf(&out, "# %s  # not supported by this run: %s\n", text, oneLine(gaps[0]))
			return
		}
		fmt.Fprintf(&out, "- %s\n", text)
	}
	fmt.Fprintf(&out, "- expr: {name: ended_well, of: runs, always: 'run.outcome == \"exited\" && run.exit_code == 0'}\n")
	if c := b.Docs.Result.Contract; c != nil && *c == "passed" {
		out.WriteString("- contract_passed: true\n")
	}
	var programs, hosts []string
	for _, p := range b.Docs.Surface.ProcessExecs {
		programs = append(programs, literal(path.Base(p)))
	}
	for _, e := range b.Docs.Surface.NetworkEndpoints {
		if host := hostOf(e); host != "" {
			hosts = append(hosts, literal(host))
		}
	}
	rule(claim.Programs, "only_programs: "+flow(programs))
	rule(claim.Hosts, "only_hosts: "+flow(hosts))
	rule(claim.Files, "only_workspace_writes: true")
	rule(claim.Privilege, "no_privileged: true")
	if len(b.Docs.Correlation.Bindings) > 0 {
		rule(claim.Calls, "no_undeclared_actions: true")
	}
	return []byte(out.String())
}

// hostOf is the host of an entry of the surface, which is "host:port", or empty
// for a socket of the machine itself.
func hostOf(endpoint string) string {
	if ap, err := netip.ParseAddrPort(endpoint); err == nil {
		return ap.Addr().String()
	}
	if strings.HasPrefix(endpoint, "unix:") {
		return ""
	}
	if host, _, ok := strings.Cut(endpoint, ":"); ok && !strings.Contains(host, "/") && strings.Count(endpoint, ":") == 1 {
		return host
	}
	if i := strings.LastIndexByte(endpoint, ':'); i > 0 {
		return strings.Trim(endpoint[:i], "[]")
	}
	return endpoint
}

// literal is a glob that matches s alone.
func literal(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`*?[]{}\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// flow is a YAML list of texts on one line.
func flow(list []string) string {
	slices.Sort(list)
	list = slices.Compact(list)
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.QuoteToASCII(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }
