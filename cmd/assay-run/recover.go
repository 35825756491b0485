package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
)

func (a *app) recoverCommand() *cobra.Command {
	var dir, output string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "recover [flags] [RUN_ID...]",
		Short: "Seal the bundles of interrupted runs",
		Long: `recover seals what runs that were interrupted (killed, out of power, out of
disk) had recorded, each to the bundle it was meant for, marked incomplete. A
torn last line is cut; everything before it is kept. The spool of a run that is
alive is never touched. Without a run id it lists what there is.`,
		Example: "  assay-run recover            list interrupted runs\n  assay-run recover --all      seal them all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			if dir == "" {
				var err error
				if dir, err = archive.DefaultSpoolDir(); err != nil {
					return withHint(err, "name the directory with --spool-dir")
				}
			}
			spools, err := archive.ListSpools(dir)
			if err != nil {
				return err
			}
			if !all && len(ids) == 0 {
				return a.listSpools(spools, asJSON)
			}
			if all {
				ids = interrupted(spools, output == "")
			}
			if output != "" && len(ids) != 1 {
				return withHint(fmt.Errorf("--output is for one run, %d are to be recovered", len(ids)), "recover them one by one")
			}
			gateway.Sweep()
			_, _, _ = kernel.Sweep() // where nothing can be shared there is nothing to free
			return a.recoverRuns(cmd.Context(), dir, ids, output, all)
		},
	}
	cmd.Flags().StringVar(&dir, "spool-dir", "", "where live runs are kept, `DIR` (default $XDG_STATE_HOME/assay-run/spool)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the bundle to `FILE` instead of the run's own output")
	cmd.Flags().BoolVar(&all, "all", false, "seal every interrupted run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	return cmd
}

// interrupted are the runs to recover. One that looks alive may just have been
// killed, and its lock be about to go: recovering it tells.
func interrupted(spools []archive.Interrupted, doubtful bool) (ids []string) {
	for _, s := range spools {
		if !s.Alive || doubtful {
			ids = append(ids, s.RunID)
		}
	}
	return ids
}

// recoverRuns seals each run; what keeps one from it does not keep the others.
// Of all runs, those that are alive and those that were sealed meanwhile are none
// to recover.
func (a *app) recoverRuns(ctx context.Context, dir string, ids []string, output string, all bool) error {
	var errs []error
	tampered := false
	for _, id := range ids {
		sealed, err := archive.Recover(ctx, dir, id, archive.RecoverOptions{Output: output})
		switch {
		case all && errors.Is(err, archive.ErrAlive):
			a.say.info("%s: left alone, it is alive or being recovered", id)
			continue
		case all && errors.Is(err, archive.ErrNoSpool):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		for _, note := range sealed.Notes {
			a.say.info("%s: %s", id, note)
		}
		for _, t := range sealed.Tampered {
			tampered = true
			a.say.warning("%s: %s", id, printable(t.String()))
		}
		fmt.Fprintf(a.stdout, "%s\t%s\n", id, printable(sealed.Path))
	}
	err := errors.Join(errs...)
	switch {
	case errors.Is(err, archive.ErrAlive):
		return withHint(err, "end the run or wait for it: a run that ends seals its own bundle")
	case errors.Is(err, archive.ErrNoSpool):
		return withHint(err, "assay-run recover lists the interrupted runs")
	case err != nil:
		return withHint(err, "a bundle that cannot be written where it was meant to be can go elsewhere with --output")
	case tampered:
		return exitError{runner.ExitRunner, withHint(errors.New("evidence was changed after it had been written: the bundles say where"), "do not rely on what those members say")}
	}
	return nil
}

func (a *app) listSpools(spools []archive.Interrupted, asJSON bool) error {
	if asJSON {
		return a.printDocument(spools)
	}
	if len(spools) == 0 {
		a.say.info("no interrupted runs")
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTATE\tOUTPUT")
	for _, s := range spools {
		state := "interrupted"
		switch {
		case s.Alive:
			state = "running"
		case s.Damage != "":
			state = "damaged: " + s.Damage
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", printable(s.RunID), printable(state), printable(s.Output))
	}
	return w.Flush()
}
