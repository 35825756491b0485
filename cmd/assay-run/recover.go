package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/harbor"
	"github.com/assay-run/assay-run/schema"
)

func recoverCommand(a *app) *cobra.Command {
	var dir string
	var to recovery
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "recover [flags] [RUN_ID...]",
		Short: "Seal the bundles of interrupted runs",
		Long: `recover seals interrupted runs (killed, power lost, disk full). It writes what each
run had recorded to the run's own output and marks the bundle incomplete. It removes
a torn last line and keeps everything before it. It never touches the spool of a run
that is still alive. It looks in the state directory, in .assay-run here, and where runs
noted that they could not write to the state directory. If the run had --result, recover writes that file too. Without a
run id or --all, it lists the interrupted runs.

For each run that it seals, recover prints a line with the run id, the bundle, and
"complete" or "incomplete", separated by tabs. A run is complete if it had ended and
only its sealing was interrupted.`,
		ValidArgsFunction: interruptedRuns,
		Example: "  assay-run recover            list interrupted runs\n  assay-run recover --all  " +
			"    seal them all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			spools, err := spoolsIn(dir)
			if err != nil {
				return console.WithHint(err, "name the directory with --spool-dir")
			}
			if !all && len(ids) == 0 {
				return listSpools(a, spools, asJSON)
			}
			chosen := spools
			if all {
				chosen = interrupted(spools, to.output == "")
			} else if chosen, err = spoolsOf(spools, ids, dir); err != nil {
				return console.WithHint(err, "name the directory with --spool-dir")
			}
			if flag := to.single(); flag != "" && len(chosen) != 1 {
				return console.WithHint(fmt.Errorf("%s names one file, but there are %d runs to recover", flag,
					len(chosen)), "recover them one at a time")
			}
			if err := archive.CheckName(to.output); err != nil {
				return console.WithHint(err, "name a .tar.gz or .tar.zst with --output")
			}
			tellSwept(a.say, runner.Sweep())
			_, _, _ = kernel.SweepBuilds() // a host that can share no observer has none to free
			return recoverRuns(cmd.Context(), a, chosen, dir, to, all)
		},
	}
	cmd.Flags().StringVar(&dir, "spool-dir", "",
		"look for interrupted runs under `DIR` only (default $XDG_STATE_HOME/assay-run/spool and, for runs that "+
			"could not write there, where they were started)")
	cmd.Flags().StringVarP(&to.output, "output", "o", "", "write the bundle to `FILE` instead of the run's own output")
	cmd.Flags().StringVar(&to.result, "result", "",
		"write result.json to `FILE` as well, instead of the run's own --result")
	cmd.Flags().BoolVar(&all, "all", false, "seal every interrupted run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	return cmd
}

// recovery names the files that recover writes. An empty name means the run's own.
type recovery struct{ output, result string }

// single returns the flag that names the file of a single run, or "" if none was given.
func (r recovery) single() string {
	switch {
	case r.output != "":
		return "--output"
	case r.result != "":
		return "--result"
	}
	return ""
}

// spoolsIn lists the spools in dir, or else in all directories where this user's runs can have theirs.
func spoolsIn(dir string) (spools []archive.Interrupted, err error) {
	dirs := []string{dir}
	if dir == "" {
		if dirs, err = archive.SpoolDirs(); err != nil {
			return nil, err
		}
	}
	spools = []archive.Interrupted{}
	var errs []error
	for _, dir := range dirs {
		list, err := archive.ListSpools(dir)
		spools, errs = append(spools, list...), append(errs, err)
	}
	if len(spools) > 0 { // a directory that cannot be read hides no run in another one
		return spools, nil
	}
	return spools, errors.Join(errs...)
}

// spoolsOf returns the spools of the runs with these ids. For an id without a spool, recovering says what is wrong.
func spoolsOf(spools []archive.Interrupted, ids []string, dir string) (list []archive.Interrupted, err error) {
	for _, id := range ids {
		found := slices.DeleteFunc(slices.Clone(spools), func(s archive.Interrupted) bool { return s.RunID != id })
		if len(found) == 0 {
			if dir == "" {
				if dir, err = archive.DefaultSpoolDir(); err != nil {
					return nil, err
				}
			}
			found = []archive.Interrupted{{RunID: id, Dir: filepath.Join(dir, id)}}
		}
		list = append(list, found...)
	}
	return list, nil
}

// interrupted returns the runs to recover. With doubtful, it includes runs that look alive: a run
// that was just killed keeps its lock for a moment, and only an attempt to recover it tells the
// difference.
func interrupted(spools []archive.Interrupted, doubtful bool) []archive.Interrupted {
	return slices.DeleteFunc(slices.Clone(spools), func(s archive.Interrupted) bool { return s.Alive && !doubtful })
}

// recoverRuns seals each run. It goes on if one cannot be sealed. With all, it skips runs that are
// alive and runs that were sealed in the meantime.
func recoverRuns(
	ctx context.Context, a *app, spools []archive.Interrupted, named string, to recovery, all bool,
) error {
	var errs []error
	tampered := false
	own, _ := archive.DefaultSpoolDir()
	for _, spool := range spools {
		id, dir := spool.RunID, filepath.Dir(spool.Dir)
		sealing, bar := console.NewProgress(ctx, a.stderr, "sealing")
		sealed, err := archive.Recover(sealing, dir, id, archive.RecoverOptions{
			Output: to.output, Found: named == "" && dir != own, Trial: trialOf,
		})
		bar.Done()
		switch {
		case all && errors.Is(err, archive.ErrAlive):
			a.say.Info("%s: not recovered: the run is alive, or another recover is working on it", id)
			continue
		case all && errors.Is(err, archive.ErrNoSpool):
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if filepath.Base(dir) == archive.SpoolBeside {
			archive.ForgetSpool(dir, id)
		}
		for _, note := range sealed.Notes {
			a.say.Info("%s: %s", id, note)
		}
		if sealed.Unchecked {
			a.say.Info("%s: no checkpoint covers run.json: nothing shows whether its output was changed", id)
		}
		if sealed.Removed != nil {
			a.say.Warning("%s: %s", id, removedWords(sealed.Removed))
		}
		for _, t := range sealed.Tampered {
			tampered = true
			a.say.Warning("%s: %s", id, schema.OneLine(t.String()))
		}
		said, err := runner.RecoverBooks(ctx, id)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
		for _, text := range said {
			a.say.Info("%s: %s", id, text)
		}
		state, err := recoveredResult(ctx, sealed, cmp.Or(to.result, sealed.ResultOutput))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is sealed, but its result was not written: %w", id, err))
		}
		fmt.Fprintf(a.stdout, "%s\t%s\t%s\n", id, schema.OneLine(sealed.Path), state)
	}
	err := errors.Join(errs...)
	switch {
	case errors.Is(err, archive.ErrAlive):
		return console.WithHint(err, "end the run or wait for it: a run that ends seals its own bundle")
	case errors.Is(err, archive.ErrPlanted):
		return console.WithHint(err,
			"seal that run with: assay-run recover --output FILE RUN_ID; do not rely on its command")
	case errors.Is(err, archive.ErrNoSpool):
		return console.WithHint(err, "assay-run recover lists the interrupted runs")
	case err != nil:
		return console.WithHint(err, "if the run's own output cannot be written, name another file with --output")
	case tampered:
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(errors.New("evidence was changed after it was recorded: the bundles say where"),
				"do not rely on the members that changed")}
	}
	return nil
}

// trialOf returns what completes the run of a trial that attach --harbor recorded; nil for other runs.
func trialOf(run *schema.Run) archive.Trial {
	if !slices.Contains(run.Command, "--harbor") || run.Labels["trial"] == "" {
		return nil
	}
	return harbor.Record(&harbor.Trial{Name: run.Labels["trial"], Dir: filepath.Dir(run.Output)}, nil, nil)
}

// recoveredResult returns "complete" or "incomplete" for a recovered run. It writes the run's
// result.json to path, unless that is empty.
func recoveredResult(ctx context.Context, sealed archive.Sealed, path string) (state string, err error) {
	state = "incomplete"
	bundle, err := archive.Open(sealed.Path)
	if err != nil {
		return state, err
	}
	docs, err := bundle.Documents(ctx, schema.SurfacePath)
	if err != nil {
		return state, err
	}
	result := docs.Result
	if result.Outcome != schema.OutcomeIncomplete {
		state = "complete"
	}
	if path == "" {
		return state, nil
	}
	result.Bundle, result.Identity = filepath.Base(sealed.Path), sealed.Identity
	data, err := schema.Document(result)
	if err != nil {
		return state, err
	}
	out, err := archive.OpenOutput(archive.Follow(path), true)
	if err != nil {
		return state, err
	}
	defer out.Close()
	return state, out.WriteFile(data)
}

func listSpools(a *app, spools []archive.Interrupted, asJSON bool) error {
	if asJSON {
		return a.printDocument(spools)
	}
	if len(spools) == 0 {
		a.say.Info("no interrupted runs")
		return nil
	}
	w := newTable(a.stdout)
	fmt.Fprintln(w, "RUN\tSTATE\tOUTPUT")
	for _, s := range spools {
		state := "interrupted"
		switch {
		case s.Alive:
			state = "running"
		case s.Damage != "":
			state = "damaged: " + s.Damage
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", schema.OneLine(s.RunID), schema.OneLine(state),
			schema.OneLine(s.Output))
	}
	return w.Flush()
}

// interruptedRuns completes the ids of runs that recover can seal.
func interruptedRuns(cmd *cobra.Command, chosen []string, _ string) ([]string, cobra.ShellCompDirective) {
	dir, err := cmd.Flags().GetString("spool-dir")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	spools, err := spoolsIn(dir)
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
