package judge

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
)

// InitialRules writes a rule file that the bundle, a good run, passes. Rules that the run
// breaks, or that its health does not support, are left as comments that say why.
func InitialRules(ctx context.Context, b *view.Bundle) ([]byte, error) {
	rules := []string{`expr: {name: ended_well, of: runs, always: 'run.outcome == "exited" && run.exit_code == 0'}`}
	if b.Docs.Result.Contract != nil {
		rules = append(rules, "contract_passed: true")
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
	rules = append(rules, "only_programs: "+flow(programs), "only_hosts: "+flow(hosts), "only_workspace_writes: true", "no_privileged: true")
	if len(b.Docs.Correlation.Bindings) > 0 {
		rules = append(rules, "no_undeclared_actions: true")
	}
	parsed, err := ParseRules(ctx, []byte("rules:\n- "+strings.Join(rules, "\n- ")+"\n"), "")
	if err != nil {
		return nil, err
	}
	defer parsed.Close()
	report, err := Judge(ctx, parsed, []*view.Bundle{b})
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# Rules for assay-run gate, from the run %s.\n# Widen or narrow them; \"assay-run gate --help\" lists all rules.\nrules:\n", b.RunID())
	for i, v := range report.Judgements[0].Verdicts {
		switch {
		case v.State == Pass:
			fmt.Fprintf(&out, "- %s\n", rules[i])
		case v.State == Fail:
			fmt.Fprintf(&out, "# %s  # this run breaks it: %s\n", rules[i], oneLine(v.Message))
		default:
			why := v.Message
			if len(v.Gaps) > 0 {
				why = v.Gaps[0]
			}
			fmt.Fprintf(&out, "# %s  # not supported by this run: %s\n", rules[i], oneLine(why))
		}
	}
	return []byte(out.String()), nil
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
