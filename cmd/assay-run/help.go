package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const longHelp = `assay-run runs a command unchanged (same stdin, stdout, stderr and exit code) in
a cgroup of its own, records what happened, and seals it into one bundle: what
the run did, what the kernel saw, and what you may conclude from it.

The command comes after "--". assay-run writes its own messages to stderr.

Exit codes:
  the command's own, or 128+n if signal n ended it
  122  the outcome contract failed
  123  the outcome contract was inconclusive
  124  the run timed out, or --model-budget-end ended it
  125  assay-run failed, or required evidence is missing or wrong
  126  the command is not executable
  127  the command was not found
A command may use the same numbers; result.json tells them apart.`

const examples = `  assay-run -- make test                     run it, leave assay-run-<run_id>.tar.gz
  assay-run -o run.tar.zst -- ./agent.sh     choose the bundle's name and codec
  assay-run --timeout 10m --memory 2G -- ./agent.sh
  assay-run --mode workspace-write -- ./agent.sh   let it write here and in /tmp only
  assay-run verify run.tar.zst               check a bundle, offline
  assay-run inspect run.tar.zst              read it`

// flagGroup is a heading with flags.
type flagGroup struct {
	title string
	flags []string
}

// runFlagGroups are the headings that --help-all of a run shows its flags under, in
// order. Each of its flags is in exactly one, and a test holds that.
var runFlagGroups = []flagGroup{
	{"Common flags", []string{"agent", "output", "timeout", "mode", "contract", "quiet"}},
	{"Bundle", []string{"store", "force", "result", "label", "run-id", "replace", "spool-dir", "compat", "lifeline"}},
	{"Command", []string{"spec", "dry-run", "workdir", "env", "env-file", "grace", "no-capture", "capture-bytes",
		"containers"}},
	{"Limits", []string{"memory", "pids", "cpus", "best-effort-limits"}},
	{"Sandbox", []string{"policy", "profile", "home", "home-layer", "closed-book", "isolate", "user"}},
	{"Observation", []string{"kernel", "kernel-buffer", "keep-observer", "deny-io-uring", "require"}},
	{"Contract", []string{"contract-baseline", "strict-checks", "evaluation"}},
	{"What the command left", []string{"workspace-changes", "workspace-changes-bytes", "artifact"}},
	{"Tool calls", []string{"agent-file", "agent-shim", "sdk-event-log", "policy-decision-log", "gateway", "audit",
		"cli-tool", "check-tool", "max-field", "max-turn"}},
	{"Models", []string{"model-gateway", "model-key", "model-upstream", "model-bodies", "model-budget",
		"model-budget-end", "model-prices", "model-replay", "model-replay-strict"}},
	{"Secrets and signing", []string{"secret-env", "secret-file", "redaction-key", "unsafe-disable-redaction", "sign",
		"sign-command"}},
	{"Help", []string{"help", "help-all", "version"}},
}

// firstFlags are those that --help shows of a run. --help-all shows all.
var firstFlags = []string{"agent", "output", "timeout", "memory", "mode", "policy", "home-layer", "env", "workdir",
	"contract", "workspace-changes", "model-gateway", "model-budget", "kernel", "require", "label", "quiet", "help",
	"help-all", "version"}

// commandGroups are the headings that --help shows the subcommands under, in order. Each is in exactly one.
var commandGroups = []struct {
	title    string
	commands []string
}{
	{"Run", []string{"run", "agents", "ps", "attach", "sandbox", "contract", "landrun"}},
	{"Read", []string{"inspect", "show", "report", "events", "query", "diff", "replay", "export"}},
	{"Judge", []string{"gate", "verify"}},
	{"Keep", []string{"store", "sign", "redact", "recover"}},
	{"Set up", []string{"doctor", "policy", "observe", "serve", "mcp", "hook", "call", "completion", "help", "man"}},
}

// helpWidth is where the text of flags in the help is broken, in columns.
const helpWidth = 100

// groupFlags makes the help of cmd and of its subcommands show the first flags of a run, or all of them in groups, and
// other flags as before. It replaces text in cobra's output instead of setting a template: with
// templates, the linker keeps every exported method of every type.
func groupFlags(cmd *cobra.Command, all bool) {
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
		grouped := "\n" + groupedFlags(cmd.LocalFlags(), all)
		_, err = io.WriteString(out, strings.Replace(text.String(), ungrouped, grouped, 1))
		return err
	})
}

// groupedFlags prints flags as those of a run if they are: the first ones, or all of them under headings.
func groupedFlags(fs *pflag.FlagSet, all bool) string {
	if fs.Lookup("output") == nil || fs.Lookup("timeout") == nil || fs.Lookup("contract") == nil {
		return "Flags:\n" + strings.TrimRight(fs.FlagUsagesWrapped(helpWidth), "\n")
	}
	groups := runFlagGroups
	if !all {
		groups = []flagGroup{{"Flags", firstFlags}}
	}
	var b strings.Builder
	for _, group := range groups {
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
