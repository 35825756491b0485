package judge

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// InitialRules returns a rule file that the bundle, which should be of a good run, passes. Rules that the run breaks,
// or that its health does not support, are comments that say why.
func InitialRules(ctx context.Context, b *view.Bundle) ([]byte, error) {
	rules := []string{`expr: {name: ended_well, of: runs, always: 'run.outcome == "exited" && run.exit_code == 0'}`}
	// A file without rules is refused, so add one that the run certainly passes.
	if r := &b.Docs.Result; r.Outcome != schema.OutcomeExited || r.ExitCode == nil || *r.ExitCode != 0 {
		rules = append(rules, fmt.Sprintf("expr: {name: ended_so, of: runs, always: 'run.outcome == %q'}", r.Outcome))
	}
	if b.Docs.Result.Contract != nil {
		rules = append(rules, "contract_passed: true")
	}
	var programs []string
	for _, p := range b.Docs.Surface.ProcessExecs {
		p = strings.TrimSuffix(p, schema.OtherMounts) // the rule ignores mount namespaces
		programs = append(programs, strings.ReplaceAll(schema.EscapeGlob(p), "<random>", "*"))
	}
	hosts, err := contacted(ctx, b)
	if err != nil {
		return nil, err
	}
	rules = append(rules, "only_programs: "+flow(programs), "only_hosts: "+flow(hosts), "only_workspace_writes: true",
		"no_privileged: true")
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
	fmt.Fprintf(&out, "# Rules for assay-run gate, from the run %s.\n# Widen or narrow them; \"assay-run gate "+
		"--help\" lists all rules.\nrules:\n", b.RunID())
	for i, v := range report.Judgements[0].Verdicts {
		switch {
		case v.State == Pass:
			fmt.Fprintf(&out, "- %s\n", rules[i])
		case v.State == Fail:
			fmt.Fprintf(&out, "# %s  # this run breaks it: %s\n", rules[i], oneLine(v.Message))
		default:
			fmt.Fprintf(&out, "# %s  # not supported by this run: %s\n", rules[i], oneLine(v.Message))
		}
	}
	return []byte(out.String()), nil
}

// contacted returns the hosts of a run as entries of only_hosts: the names if known, since addresses change, and
// [resolvers] for the host's DNS servers.
func contacted(ctx context.Context, b *view.Bundle) ([]string, error) {
	var hosts []string
	for it, err := range b.Items(ctx, schema.KernelPath) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		k := it.Kernel
		ap, ok := endpointOf(k)
		switch {
		case k.Class == schema.ClassRunner || k.Class == schema.ClassCheck:
		case k.Kind == schema.KindDNS && asks(k):
			hosts = append(hosts, schema.EscapeGlob(k.Value))
		case !ok:
		case ap.Port() == dnsPort && slices.Contains(b.Docs.Run.Resolvers, ap.Addr().Unmap().String()):
			hosts = append(hosts, resolvers)
		case len(k.Names) > 0:
			for _, name := range k.Names {
				hosts = append(hosts, schema.EscapeGlob(name))
			}
		default:
			hosts = append(hosts, ap.Addr().Unmap().String())
		}
		if len(hosts) > 1000 {
			slices.Sort(hosts)
			hosts = slices.Compact(hosts)
		}
	}
	return hosts, nil
}

// flow returns a YAML list on one line, sorted.
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
