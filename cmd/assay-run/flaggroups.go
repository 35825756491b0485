package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runFlagGroups are the headings that the help of a run shows its flags under, in
// order. Each of its flags is in exactly one, and a test holds that.
var runFlagGroups = []struct {
	title string
	flags []string
}{
	{"Common flags", []string{"output", "timeout", "mode", "contract", "quiet"}},
	{"Bundle", []string{"store", "force", "result", "label", "run-id", "replace", "spool-dir", "compat", "lifeline"}},
	{"Command", []string{"spec", "dry-run", "workdir", "env", "env-file", "grace", "no-capture", "capture-bytes",
		"containers"}},
	{"Limits", []string{"memory", "pids", "cpus", "best-effort-limits"}},
	{"Sandbox", []string{"policy", "profile", "isolate", "user"}},
	{"Observation", []string{"kernel", "kernel-buffer", "keep-observer", "deny-io-uring", "require"}},
	{"Contract", []string{"contract-baseline", "strict-checks", "evaluation"}},
	{"What the command left", []string{"workspace-changes", "workspace-changes-bytes", "artifact"}},
	{"Tool calls", []string{"agent-shim", "sdk-event-log", "policy-decision-log", "gateway", "audit", "cli-tool",
		"check-tool", "max-field", "max-turn"}},
	{"Models", []string{"model-gateway", "model-key", "model-upstream", "model-bodies", "model-budget",
		"model-budget-end", "model-prices", "model-replay", "model-replay-strict"}},
	{"Secrets and signing", []string{"secret-env", "secret-file", "redaction-key", "unsafe-disable-redaction", "sign",
		"sign-command"}},
	{"Help", []string{"help", "version"}},
}

// helpWidth is where the text of flags in the help is broken, in columns.
const helpWidth = 100

// groupFlags makes the help of cmd and of its subcommands show the flags of a run
// in groups, and other flags as before. It replaces text and not cobra's template:
// with templates, the linker keeps every exported method of every type.
func groupFlags(cmd *cobra.Command) {
	usual := new(cobra.Command).UsageFunc()
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		var text strings.Builder
		cmd.SetOut(&text)
		err := usual(cmd)
		cmd.SetOut(out)
		if err != nil {
			return err
		}
		ungrouped := "\nFlags:\n" + strings.TrimRight(cmd.LocalFlags().FlagUsages(), " \n")
		_, err = io.WriteString(out, strings.Replace(text.String(), ungrouped, "\n"+groupedFlags(cmd.LocalFlags()), 1))
		return err
	})
}

// groupedFlags renders flags under the headings of a run, if they are a run's.
func groupedFlags(fs *pflag.FlagSet) string {
	if fs.Lookup("output") == nil || fs.Lookup("timeout") == nil || fs.Lookup("contract") == nil {
		return "Flags:\n" + strings.TrimRight(fs.FlagUsagesWrapped(helpWidth), "\n")
	}
	var b strings.Builder
	for _, group := range runFlagGroups {
		of := pflag.NewFlagSet("", pflag.ContinueOnError)
		of.SortFlags = false
		for _, name := range group.flags {
			if flag := fs.Lookup(name); flag != nil {
				of.AddFlag(flag)
			}
		}
		b.WriteString(group.title + ":\n" + of.FlagUsagesWrapped(helpWidth) + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
