package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:   "verify [flags] BUNDLE",
		Short: "Check a bundle: digests, schemas, sequence, invariants",
		Long: `verify reads a bundle once, offline, in bounded memory, and reports every fault
it finds with a stable code, the member and the line.

Exit status: 0 the bundle is whole and valid; 1 damaged (bytes are not those
that were sealed); 2 invalid (well-formed, but not what a bundle may contain);
3 it could not be read at all.`,
		Example: "  assay-run verify run.tar.gz",
		Args:    oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.say.quiet = quiet
			report, err := archive.Verify(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				if err := a.printDocument(report); err != nil {
					return err
				}
			}
			for _, p := range report.Problems {
				a.say.line(red, "error: ", args[0]+": "+p.Error())
			}
			if report.More > 0 {
				a.say.warning("%d more problems are not listed", report.More)
			}
			if !report.OK() {
				return exitError{code: exitStatus[report.Class()]}
			}
			if !asJSON && !quiet {
				_, err = fmt.Fprintf(a.stdout, "%s: ok\nrun %s\nidentity %s\n%d members, %d lines\n",
					printable(args[0]), report.RunID, report.Identity, report.Members, lines(report))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "say nothing when the bundle is valid")
	return cmd
}

func oneBundle(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return withHint(fmt.Errorf("%s takes one bundle, got %d", cmd.Name(), len(args)), "as in: %s run.tar.gz", cmd.CommandPath())
	}
	return nil
}

// exitStatus is what verify exits with for the gravest class of problems.
var exitStatus = map[archive.Class]int{archive.Damaged: 1, archive.Invalid: 2, archive.Unreadable: 3}

func lines(r *archive.Report) uint64 {
	var n uint64
	for _, layer := range r.Lines {
		n += layer
	}
	return n
}
