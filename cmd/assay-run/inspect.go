package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

func inspectCommand(a *app) *cobra.Command {
	var asJSON, unverified, all bool
	var section string
	var limit int
	cmd := &cobra.Command{
		Use:   "inspect [flags] BUNDLE...",
		Short: "Show what ran, what it touched and what may be claimed",
		Long: `inspect prints one page of at most 40 lines about a run: the findings by its evaluation
file (see docs/evaluation.md), the command, how it ended, its contract and sandbox, what
may be claimed, its tool calls, what was denied, what it wrote outside of the workspace,
its hosts and programs. --all prints everything.

The JSON has the schema assay.runner.inspection.v0 (schema/json). Fields are added,
never changed.

"-" reads a bundle from standard input.`,
		Example: "  assay-run inspect run.tar.gz\n  assay-run inspect --json run.tar.gz | jq .hosts",
		Args:    someBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			most := 0 // no limit: a page of text has its own
			if asJSON && cmd.Flags().Changed("limit") {
				most = limit
			}
			how := reading{titles: !asJSON, unverified: unverified, follow: evaluation.Follow(nil)}
			return eachBundle(cmd.Context(), a, args, how,
				func(bundle *view.Bundle) error {
					s, err := view.Summarize(cmd.Context(), bundle, most)
					if err != nil {
						return console.WithHint(err, "run assay-run verify %s", bundle.Name)
					}
					if e := bundle.Docs.Evaluation; e != nil {
						if s.Evaluation, err = evaluation.Judge(cmd.Context(), bundle, &e.Evaluation); err != nil {
							return console.WithHint(err, "run assay-run verify %s", bundle.Name)
						}
					}
					if asJSON {
						return a.printDocument(s)
					}
					page := console.Page(a.stdout, view.Inspection)
					page.Limit, page.Section = limit, section
					page.All = all || cmd.Flags().Changed("limit")
					return s.WriteText(a.stdout, page)
				})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the same as JSON")
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also print a bundle that does not verify, with a warning")
	cmd.Flags().IntVar(&limit, "limit", view.DefaultLimit,
		"with --all, list at most `N` entries in each section; --json without --limit lists all")
	cmd.Flags().BoolVar(&all, "all", false, "print every section whole")
	cmd.Flags().StringVar(&section, "section", "", "print the section `NAME` only; the page ends with their names")
	return cmd
}

func eventsCommand(a *app) *cobra.Command {
	var f view.Filter
	var table, unverified bool
	var pids, execIDs []uint
	cmd := &cobra.Command{
		Use:   "events [flags] BUNDLE...",
		Short: "Print the events of a bundle, filtered, as NDJSON or a table",
		Long: `events prints the events of one or more layers (default kernel) that match all filters,
either as NDJSON, exactly as in the bundle, or as a table. If a bundle does not verify,
events refuses it before it prints anything.

"-" reads a bundle from standard input.`,
		Example: `  assay-run events --kind exec --table run.tar.gz
  assay-run events --path '/etc/**' --result error run.tar.gz
  assay-run events --process git --descendants --host '*.example.com' run.tar.gz
  assay-run events --layer lifecycle run.tar.gz`,
		Args: someBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range pids {
				f.PIDs = append(f.PIDs, uint32(id))
			}
			for _, id := range execIDs {
				f.ExecIDs = append(f.ExecIDs, uint64(id))
			}
			return eachBundle(cmd.Context(), a, args, reading{titles: table, unverified: unverified},
				func(bundle *view.Bundle) error {
					events := view.Events(cmd.Context(), bundle, f)
					if table {
						return console.Page(a.stdout, view.Rows).Write(a.stdout, func(w io.Writer) error {
							_, err := view.WriteTable(w, events)
							return err
						})
					}
					_, err := view.WriteNDJSON(a.stdout, events)
					return err
				})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&table, "table", false, "print a table for people")
	fs.BoolVar(&unverified, "unverified", false, "also print a bundle that does not verify, with a warning")
	fs.StringSliceVar(&f.Layers, "layer", nil,
		"only these `LAYERS`: lifecycle, kernel, policy, sdk, turns, audit (default kernel)")
	fs.StringSliceVar(&f.Kinds, "kind", nil, "only these `KINDS`: openat, exec, connect, run_started, ...")
	fs.UintSliceVar(&pids, "pid", nil, "only processes with these `PIDS`")
	fs.UintSliceVar(&execIDs, "exec-id", nil, "only process instances with these exec_id `IDS`")
	fs.StringVar(&f.Process, "process", "", "only processes whose executable, name or arguments match `GLOB`")
	fs.BoolVar(&f.Descendants, "descendants", false,
		"with --process, --pid or --exec-id, also the processes that they started")
	fs.StringVar(&f.Path, "path", "", "only events with a path that matches `GLOB` (** crosses directories)")
	fs.StringVar(&f.Host, "host", "", "only events with the host `NAME`: a name, glob, address, prefix or address:port")
	fs.StringVar(&f.Result, "result", "",
		"only events with this `RESULT`: ok, error, blocked, or an errno such as ENOENT")
	fs.StringSliceVar(&f.Classes, "class", nil,
		"only these `CLASSES`: agent, loader, locale, runtime, introspection, lookup, check, runner, setup")
	fs.Var((*duration)(&f.Since), "since", "only events at least `TIME` after the start, such as 1.5s")
	fs.Var((*duration)(&f.Until), "until", "only events at most `TIME` after the start")
	fs.StringVar(&f.ToolCall, "tool-call", "", "only events of the tool call `ID`")
	for _, name := range []string{"pid", "exec-id", "since", "until"} {
		fs.Lookup(name).DefValue = ""
	}
	console.Completes(cmd, eventValues())
	return cmd
}

// eventValues returns the values that shell completion offers for flags of events.
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
