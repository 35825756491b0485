package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

func psCommand(a *app) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ps [flags]",
		Short: "List the runs that are recorded now",
		Long: `ps lists your live runs, the oldest first. A run is live while its recorder, or a recover,
holds the lock of its spool. ps looks where recover does. A run is "sealing" when its command
has ended and its bundle is being written. recover lists interrupted runs.`,
		Example: `  assay-run ps
  assay-run show --follow "$(assay-run ps | awk 'NR == 2 {print $1}')"`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			spools, err := spoolsIn(dir)
			if err != nil {
				return console.WithHint(err, "name the directory with --spool-dir")
			}
			live := slices.DeleteFunc(spools, func(s archive.Interrupted) bool { return !s.Alive })
			slices.SortFunc(live, func(x, y archive.Interrupted) int {
				return cmp.Or(cmp.Compare(x.StartedAt, y.StartedAt), cmp.Compare(x.RunID, y.RunID))
			})
			if asJSON {
				return a.printDocument(live)
			}
			if len(live) == 0 {
				a.say.Info("no live runs")
				return nil
			}
			w := newTable(a.stdout)
			fmt.Fprintln(w, "RUN\tSINCE\tSTATE\tCOMMAND")
			for _, s := range live {
				state := "running"
				if _, err := os.Lstat(filepath.Join(s.Dir, schema.ResultPath)); err == nil {
					state = "sealing"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", schema.OneLine(s.RunID), schema.OneLine(s.StartedAt), state,
					view.Cut(view.QuoteArgs(s.Command), 100))
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&dir, "spool-dir", "", "look for runs under `DIR` only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	return cmd
}
