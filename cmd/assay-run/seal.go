package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/sign"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// seal turns the spool into the bundle, tells the user, and gives the exit
// code as an error. Evidence that could not be kept is the runner's failure,
// whatever the command did. released is called once the bundle is sealed. The end of ctx ends the
// sealing.
func (r *recording) seal(ctx context.Context, result *schema.Result, recorded error, released func(sealed bool)) error {
	unwritten := r.out.write(result, r.redactor)
	if unwritten != nil { // the bundle says what we exit with
		*result.RunnerExitCode = runner.ExitRunner
		if doc, err := schema.Document(result); err == nil {
			_ = r.spool.Put(schema.ResultPath, r.redactor.JSON(schema.ResultPath, doc))
		}
	}
	sealing, bar := console.NewProgress(ctx, r.stderr, "sealing")
	if r.say.Quiet {
		sealing = ctx
	}
	sealed, err := r.spool.Seal(sealing)
	bar.Done()
	if len(sealed.Tampered) > 0 { // as the bundle has it
		code, source := runner.ExitRunner, schema.SourceRunner
		result.RunnerExitCode, result.ErrorSource = &code, &source
		if verdict := schema.VerdictInconclusive; result.Contract != nil {
			result.Contract = &verdict
		}
		result.Error = &schema.ResultError{Code: archive.CodeTampered,
			Message: archive.TamperedMessage(sealed.Tampered), Hint: archive.TamperedRemedy}
		unwritten = cmp.Or(unwritten, r.out.write(result, r.redactor))
	}
	if sealed.Removed != nil { // the copies of the output are of other lengths now
		r.tellRemoved(sealed.Removed)
		_ = json.Unmarshal(sealed.Result, result)
	}
	if err == nil && r.signer != nil {
		if _, serr := sign.Bundle(ctx, sealed.Path, sealed.Identity, r.signer); serr != nil {
			err = console.WithHint(fmt.Errorf("the bundle is whole but not signed: %w", serr),
				"sign it with assay-run sign: %s", sealed.Path)
		}
	}
	if err != nil {
		*result.RunnerExitCode = runner.ExitRunner
	}
	if unwritten == nil {
		r.writeSealed(result, sealed)
	}
	released(sealed.Path != "")
	switch {
	case err != nil && sealed.Path == "":
		return console.ExitError{Code: runner.ExitRunner,
			Err: console.WithHint(err, "the evidence is kept: %s", sealHint(err))}
	case err != nil:
		return console.ExitError{Code: runner.ExitRunner, Err: err}
	case len(sealed.Tampered) > 0:
		return r.tampered(sealed)
	case unwritten != nil:
		return console.ExitError{Code: runner.ExitRunner,
			Err: console.WithHint(unwritten, "the bundle is whole: %s", sealed.Path)}
	case recorded != nil:
		return console.ExitError{Code: runner.ExitRunner,
			Err: console.WithHint(fmt.Errorf("the bundle is incomplete: %w", recorded), "see %s", sealed.Path)}
	}
	if result.Error != nil {
		err := fmt.Errorf("%s", result.Error.Message)
		if result.Error.Hint != "" {
			err = console.WithHint(err, "%s", result.Error.Hint)
		}
		r.say.Failure(err)
	}
	verdict := ""
	if result.Contract != nil {
		verdict = "contract " + *result.Contract + notPassed(result.Checks) + "; "
	}
	r.say.Info("%s; %sbundle %s; identity %s", result.Ending(&r.record), verdict, sealed.Path, sealed.Identity)
	if code := *result.RunnerExitCode; code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// notPassed names the first checks that did not pass.
func notPassed(checks []schema.CheckSummary) string {
	const most = 3
	var names []string
	for _, c := range checks {
		if c.Result != schema.CheckPassed {
			names = append(names, console.Printable(c.Name))
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// writeSealed adds to the file of --result what is known only now.
func (r *recording) writeSealed(result *schema.Result, sealed archive.Sealed) {
	if sealed.Path != "" {
		result.Bundle, result.Identity = filepath.Base(sealed.Path), sealed.Identity
	}
	if err := r.out.write(result, r.redactor); err != nil {
		r.say.Warning("the file of --result does not name the sealed bundle: %v", err)
	}
}

// sealHint says what helps a run that could not be sealed.
func sealHint(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "raise the limit of open files (ulimit -n 1024) and recover the run"
	case errors.Is(err, syscall.ENOMEM):
		return "free memory and recover the run"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space and recover the run, or add --output FILE to that command to seal it on another disk"
	}
	return "recover the run, or add --output FILE to that command to seal it elsewhere"
}
