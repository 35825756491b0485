package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/sign"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

func verifyCommand(a *app) *cobra.Command {
	var v verification
	cmd := &cobra.Command{
		Use:   "verify [flags] BUNDLE...",
		Short: "Check bundles: digests, schemas, sequence, invariants",
		Long: `verify reads each bundle once, offline, in bounded memory, and reports the
faults it finds with a stable code, the member and the line. It stops checking a
layer at its first fault; --all lists up to 100 of each.

Exit status: 0 every bundle is intact and valid; 1 damaged (the bytes differ from
those that were sealed); 2 invalid (intact, but with content that a bundle may not
have); 3 unreadable; 4 valid, but not signed by an accepted key; 5 valid, but
incomplete (only with --complete). For several bundles, the exit status is the first
of 3, 1, 2, 4 and 5 that applies to any of them.

A valid unsigned bundle is consistent, but nothing proves who made it: anyone can
make one. --key or --allowed-signers requires a signature.

"-" reads a bundle from standard input.`,
		Example: `  assay-run verify run.tar.gz
  assay-run verify --complete runs/*.tar.gz
  assay-run verify --key ci-key.pub run.tar.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.say.Quiet = v.quiet
			if err := someBundles(cmd, args); err != nil {
				return err
			}
			trust, err := v.from.trust()
			if err != nil {
				return err
			}
			inputs, err := archive.OpenInputs(cmd.Context(), args, a.stdin)
			if err != nil {
				return err
			}
			defer inputs.Close()
			code := 0
			var errs []error
			for _, in := range inputs.All {
				status, err := verifyInput(cmd.Context(), a, in, &v, trust)
				errs = append(errs, err)
				if slices.Index(gravity, status) < slices.Index(gravity, code) {
					code = status
				}
			}
			if err := errors.Join(errs...); err != nil || code == 0 {
				return err
			}
			return console.ExitError{Code: code}
		},
	}
	cmd.Flags().BoolVar(&v.asJSON, "json", false, "print a report of each bundle as JSON")
	cmd.Flags().BoolVarP(&v.quiet, "quiet", "q", false, "print nothing if the bundles are valid")
	cmd.Flags().BoolVar(&v.all, "all", false, "list up to 100 faults of each layer, not only the first")
	cmd.Flags().BoolVar(&v.complete, "complete", false,
		"require that each run ended normally and was sealed by its own recorder")
	v.from.flags(cmd)
	return cmd
}

// verification is the flags of verify.
type verification struct {
	asJSON, quiet, complete, all bool
	from                         origin
}

// gravity lists the exit codes of verify, the gravest first.
var gravity = []int{3, 1, 2, exitOrigin, exitIncomplete, 0}

// exitIncomplete is what verify --complete exits with for a valid bundle that was
// recovered, or whose run did not come to its end.
const exitIncomplete = 5

// verifyInput checks one bundle and prints what it found. An error is a failure that has
// no exit status of its own.
func verifyInput(ctx context.Context, a *app, in archive.Input, v *verification, trust *sign.Trust) (status int,
	err error) {
	ctx, bar := console.NewProgress(ctx, a.stderr, "verifying")
	defer bar.Done()
	check := archive.Verify
	if v.all {
		check = archive.VerifyAll
	}
	report, err := check(ctx, in.Path)
	if err != nil {
		return 0, err
	}
	result := verified{Report: report}
	var unsigned error
	if trust != nil && report.OK() {
		if result.Origin, unsigned = v.from.check(ctx, in, report.Identity, trust); unsigned != nil {
			result.OriginError = unsigned.Error()
		}
	}
	bar.Done()
	if v.asJSON {
		if err := a.printDocument(result); err != nil {
			return 0, err
		}
	}
	for _, p := range report.Problems {
		a.say.Error("%s: %v", in.Name, &p)
	}
	if report.More > 0 {
		a.say.Warning("%d more problems are not listed", report.More)
	}
	if len(report.Unfinished) > 0 && !v.all {
		a.say.Info("the check of %s stopped at its first fault; --all lists up to 100",
			strings.Join(report.Unfinished, ", "))
	}
	switch {
	case !report.OK():
		return exitStatus[report.Class()], nil
	case unsigned != nil:
		a.say.Failure(console.WithHint(unsigned,
			"the bundle is consistent, but nothing shows who made it: anyone can make a consistent bundle"))
		return exitOrigin, nil
	case v.complete && !report.Complete:
		a.say.Failure(console.WithHint(fmt.Errorf("%s: the run is incomplete: its recorder ended before it", in.Name),
			"see why with assay-run inspect %s", in.Name))
		return exitIncomplete, nil
	}
	if !v.asJSON && !v.quiet {
		incomplete := ""
		if !report.Complete {
			incomplete = "incomplete: the recorder ended before the run\n"
		}
		err = console.Page(a.stdout, verdicts).Write(a.stdout, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s: ok\nrun %s\nidentity %s\n%d members, %d lines\n%s%s\n",
				schema.OneLine(in.Name), report.RunID, report.Identity, report.Members, lineCount(report),
				incomplete, originLine(result.Origin))
			return err
		})
	}
	return 0, err
}

// verdicts colours what verify prints of a bundle.
var verdicts = view.Colours(`^.+: (ok)$`, `^(incomplete): `, "")

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
		return fmt.Sprintf("signed by %s, key %s", schema.OneLine(strings.Join(o.Principals, ",")), o.KeyID)
	}
	return "signed by key " + o.KeyID
}

func lineCount(r *archive.Report) uint64 {
	var n uint64
	for _, layer := range r.Lines {
		n += layer
	}
	return n
}

// origin is the flags that say whose signatures verify accepts.
type origin struct{ key, allowed, principal, signature string }

func (o *origin) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "require a signature by a public key in `FILE` (PEM or OpenSSH)")
	f.StringVar(&o.allowed, "allowed-signers", "",
		"require a signature by someone in `FILE` (OpenSSH's allowed signers)")
	f.StringVar(&o.principal, "principal", "", "accept only allowed signers with the principal `NAME`")
	f.StringVar(&o.signature, "signature", "", "read the signatures from `FILE` (default BUNDLE"+sign.Suffix+")")
}

// trust reads the keys. It returns nil if no flag asks for a signature.
func (o *origin) trust() (*sign.Trust, error) {
	switch {
	case o.key != "" && o.allowed != "":
		return nil, console.WithHint(fmt.Errorf("--key and --allowed-signers cannot be used together"),
			"add the key to the allowed signers' file")
	case o.principal != "" && o.allowed == "":
		return nil, console.WithHint(fmt.Errorf("--principal needs --allowed-signers"),
			"name the file that says which key the principal has")
	case o.key != "":
		return sign.Keys(o.key)
	case o.allowed != "":
		return sign.AllowedSigners(o.allowed, o.principal)
	case o.signature != "":
		return nil, console.WithHint(fmt.Errorf("--signature needs --key or --allowed-signers"),
			"say whose signature to accept")
	}
	return nil, nil
}

// check finds out who signed the verified bundle.
func (o *origin) check(ctx context.Context, in archive.Input, identity string, trust *sign.Trust) (*sign.Origin,
	error) {
	if in.Name == "-" && o.signature == "" {
		return nil, fmt.Errorf("-: %w: name the file of signatures with --signature", sign.ErrUnsigned)
	}
	origin, err := sign.Check(ctx, in.Path, o.signature, trust, time.Now())
	if err == nil && origin.Identity != identity {
		err = errors.New("it was replaced while it was read")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Name, err)
	}
	return origin, nil
}
