package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/sign"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON, quiet bool
	var from origin
	cmd := &cobra.Command{
		Use:   "verify [flags] BUNDLE",
		Short: "Check a bundle: digests, schemas, sequence, invariants",
		Long: `verify reads a bundle once, offline, in bounded memory, and reports every fault
it finds with a stable code, the member and the line.

Exit status: 0 the bundle is whole and valid; 1 damaged (bytes are not those
that were sealed); 2 invalid (well-formed, but not what a bundle may contain);
3 it could not be read at all; 4 it is valid, and no accepted key signed it.

An unsigned bundle proves that it is consistent, and not where it comes from:
anyone can make one. --key or --allowed-signers requires a signature.`,
		Example: `  assay-run verify run.tar.gz
  assay-run verify --key ci-key.pub run.tar.gz`,
		Args: oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.say.quiet = quiet
			trust, err := from.trust()
			if err != nil {
				return err
			}
			report, err := archive.Verify(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			result := verified{Report: report}
			var unsigned error
			if trust != nil && report.OK() {
				if result.Origin, unsigned = from.check(cmd.Context(), args[0], trust); unsigned != nil {
					result.OriginError = unsigned.Error()
				}
			}
			if asJSON {
				if err := a.printDocument(result); err != nil {
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
			if unsigned != nil {
				return exitError{exitOrigin, withHint(unsigned, "the bundle is consistent, but its origin is not shown: anyone can make a consistent bundle")}
			}
			if !asJSON && !quiet {
				_, err = fmt.Fprintf(a.stdout, "%s: ok\nrun %s\nidentity %s\n%d members, %d lines\n%s\n",
					printable(args[0]), report.RunID, report.Identity, report.Members, lines(report), originLine(result.Origin))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "say nothing when the bundle is valid")
	from.flags(cmd)
	return cmd
}

// verified is what verify --json prints.
type verified struct {
	*archive.Report
	// Origin is who signed, when a signature was asked for and accepted;
	// OriginError says why not.
	Origin      *sign.Origin `json:"origin,omitempty"`
	OriginError string       `json:"origin_error,omitempty"`
}

// exitOrigin is what verify exits with for a valid bundle whose origin is not
// shown although a signature was asked for.
const exitOrigin = 4

func originLine(o *sign.Origin) string {
	switch {
	case o == nil:
		return "origin not checked: this shows that the bundle is consistent, not who made it (see --key)"
	case len(o.Principals) > 0:
		return fmt.Sprintf("signed by %s, key %s", printable(strings.Join(o.Principals, ",")), o.KeyID)
	}
	return "signed by key " + o.KeyID
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
