package main

import (
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// runValues are the values that completion offers for flags of a run.
func runValues() map[string][]string {
	return map[string][]string{
		"agent-shim":   runner.Shims,
		"compat":       {"v0"},
		"gateway":      {runner.GatewayUnix, runner.GatewayWS},
		"isolate":      {runner.IsolatePID},
		"kernel":       runner.Kernels,
		"mode":         sandbox.Modes,
		"model-bodies": {schema.ModelBodiesNone},
		"profile":      sandbox.Builtins(),
		"require":      runner.Requirements,
	}
}

// eventValues are those for flags of events.
func eventValues() map[string][]string {
	values := map[string][]string{"result": {"ok", "error", "blocked", "EACCES", "ENOENT", "EPERM", "EROFS"}}
	for _, path := range schema.AllLayers {
		values["layer"] = append(values["layer"], schema.LayerName(path))
	}
	for _, k := range schema.Kinds() {
		values["kind"] = append(values["kind"], k.String())
	}
	for c := range schema.NumClasses {
		values["class"] = append(values["class"], schema.Class(c).String())
	}
	return values
}

// interruptedRuns offers the runs that recover can seal.
func interruptedRuns(cmd *cobra.Command, chosen []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir, err := cmd.Flags().GetString("spool-dir")
	if err == nil && dir == "" {
		dir, err = archive.DefaultSpoolDir()
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	spools, err := archive.ListSpools(dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, s := range spools {
		if !s.Alive {
			ids = append(ids, s.RunID)
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// reviewed offers what the reviewer would.
func reviewed(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	path, err := findReviewer()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	out, err := exec.Command(path,
		append(append([]string{cobra.ShellCompRequestCmd, cmd.Name()}, args...), typed)...).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last, found := strings.CutPrefix(lines[len(lines)-1], ":")
	directive, bad := strconv.Atoi(last)
	if err != nil || !found || bad != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}
