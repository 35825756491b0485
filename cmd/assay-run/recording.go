package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/sign"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// recording is where the evidence of a run goes, and who redacts and signs it.
type recording struct {
	*app
	flags    *runFlags
	record   schema.Run
	signer   sign.Signer      // nil: nobody signs
	redactor *redact.Redactor // nil: redaction is disabled
	out      *outputs
	spool    *archive.Spool // nil before start
	beside   string         // the directory of the spool, if it is not the user's own or that of --spool-dir
}

// prepareRecording checks and opens what a recording needs, except the spool. The caller closes the
// recording. rules are the policy, or nil without one. The error has a hint.
func prepareRecording(ctx context.Context, a *app, spec *specfile.Spec, f *runFlags, output string,
	rules *policyfile.File) (*recording, error) {
	r := &recording{app: a, flags: f}
	var opening sync.WaitGroup
	var unopened error
	opening.Go(func() { r.out, unopened = openOutputs(ctx, a, f, output) }) // the disk may be slow
	err := r.describe(spec, output, rules)
	opening.Wait()
	if err == nil {
		err = unopened
	}
	if err != nil {
		if r.out != nil {
			r.out.close()
		}
		return nil, err
	}
	runner.Preload(spec)
	return r, nil
}

// describe sets the record of the run, the redactor and the signer.
func (r *recording) describe(spec *specfile.Spec, output string, rules *policyfile.File) (err error) {
	f := r.flags
	if r.record, err = runner.Record(spec, time.Now(), "assay-run "+version(), output, rules); err != nil {
		return nowhere(err)
	}
	if f.result != "" {
		if r.record.ResultOutput, err = filepath.Abs(f.result); err != nil {
			return nowhere(err)
		}
	}
	if r.signer, err = f.sign.load(); err != nil {
		return console.WithHint(err, "see assay-run sign --help")
	}
	f.sign.hide()
	if r.redactor, err = runRedactor(r.say, &f.redact, spec); err != nil {
		return err
	}
	if r.record, err = redactRecord(r.redactor, r.record); err != nil {
		return err
	}
	if r.redactor == nil {
		r.record.Redaction = schema.RedactionDisabled
	}
	return nil
}

// start makes the spool. From here on, what is recorded survives the end of this process and, once
// the spool is on disk, a crash of the host.
func (r *recording) start() (err error) {
	if r.spool, err = r.createSpool(); err != nil {
		return err
	}
	r.spool.SealTo(r.out.bundle)
	r.spool.Redact(r.redactor)
	return nil
}

func (r *recording) close() {
	if r.spool != nil {
		r.spool.Close()
	}
	if r.beside != "" {
		archive.ForgetSpool(r.beside, r.record.RunID)
	}
	r.out.close()
}

// createSpool makes the spool in the directory of --spool-dir, or else in the user's own. If the
// user has no home that can be written, as in many containers, it makes the spool beside the
// bundle, or else in the directory for temporary files.
func (r *recording) createSpool() (*archive.Spool, error) {
	if dir := r.flags.spoolDir; dir != "" {
		return spoolIn(dir, r.flags, r.record)
	}
	dir, err := archive.DefaultSpoolDir()
	if err == nil {
		spool, err := spoolIn(dir, r.flags, r.record)
		if err == nil || !cannotBeMade(err) {
			return spool, err
		}
	}
	var unsafe []error
	for _, parent := range []string{filepath.Dir(r.record.Output), os.TempDir()} {
		beside := filepath.Join(parent, archive.SpoolBeside)
		if why := archive.CheckSpoolParent(beside); why != nil {
			unsafe = append(unsafe, why)
			continue
		}
		spool, berr := spoolIn(beside, r.flags, r.record)
		if errors.Is(berr, fs.ErrNotExist) { // another run has just removed the directory
			spool, berr = spoolIn(beside, r.flags, r.record)
		}
		if berr != nil && cannotBeMade(berr) {
			continue
		}
		if berr == nil {
			r.beside = beside
			found, tell := "--all", r.say.Info
			if archive.NoteSpool(beside, r.record.RunID) != nil { // then nothing else says where it is
				found, tell = "--spool-dir "+view.QuoteArgs([]string{beside})+" --all", r.say.Warning
			}
			tell("the evidence is in %s until it is sealed, as %s cannot be written; if the run is killed, "+
				"use: assay-run recover %s", schema.OneLine(beside),
				schema.OneLine(cmp.Or(dir, "the home directory")), found)
		}
		return spool, berr
	}
	if err = errors.Join(unsafe...); err == nil {
		err = errors.New("one beside the bundle cannot be written either")
	}
	return nil, console.WithHint(fmt.Errorf("the spool directory %s cannot be written: %w", dir, err),
		"choose a directory with --spool-dir")
}

// cannotBeMade reports whether err means that no run can have its spool directory here.
func cannotBeMade(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.ENOTDIR)
}

func spoolIn(dir string, f *runFlags, record schema.Run) (*archive.Spool, error) {
	if f.replace {
		err := archive.Discard(dir, record.RunID)
		if err != nil && !errors.Is(err, archive.ErrNoSpool) {
			return nil, console.WithHint(err, "choose another --run-id")
		}
	}
	spool, err := archive.StartSpool(dir, record)
	switch {
	case errors.Is(err, archive.ErrExists) && archive.Alive(filepath.Join(dir, record.RunID)):
		return nil, console.WithHint(fmt.Errorf("run %s is still running", record.RunID),
			"choose another --run-id, or wait for that run")
	case errors.Is(err, archive.ErrExists):
		named := ""
		if f.spoolDir != "" {
			named = "--spool-dir " + view.QuoteArgs([]string{f.spoolDir}) + " "
		}
		return nil, console.WithHint(fmt.Errorf("run %s was interrupted, and its evidence is not sealed yet",
			record.RunID),
			"seal it with: assay-run recover %s%s; or discard it with --replace; or choose another --run-id", named,
			record.RunID)
	case err != nil:
		return nil, console.WithHint(err, "choose another directory with --spool-dir")
	}
	return spool, nil
}

// seal turns the spool into the bundle, tells the user, and returns the exit code as an error. If
// evidence could not be kept, that is a failure of the runner, whatever the command did. seal calls
// released when it has sealed the bundle, or could not. The end of ctx ends the sealing.
func (r *recording) seal(ctx context.Context, result *schema.Result, recorded error, released func(sealed bool)) error {
	unwritten := r.out.write(result, r.redactor)
	if unwritten != nil { // the bundle has our exit code
		*result.RunnerExitCode = schema.ExitRunner
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
		archive.DoubtResult(result, sealed.Tampered)
		unwritten = cmp.Or(unwritten, r.out.write(result, r.redactor))
	}
	if sealed.Removed != nil { // the copies of the output have other lengths now
		tellRemoved(r.say, sealed.Removed)
		_ = json.Unmarshal(sealed.Result, result)
	}
	if err == nil && r.signer != nil {
		if _, serr := sign.Bundle(ctx, sealed.Path, sealed.Identity, r.signer); serr != nil {
			err = console.WithHint(fmt.Errorf("the bundle is whole but not signed: %w", serr),
				"sign it with assay-run sign: %s", sealed.Path)
		}
	}
	if err != nil {
		*result.RunnerExitCode = schema.ExitRunner
	}
	if unwritten == nil {
		r.writeSealed(result, sealed)
	}
	released(sealed.Path != "")
	switch {
	case err != nil && sealed.Path == "":
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(err, "the evidence is kept: %s", sealHint(err))}
	case err != nil:
		return console.ExitError{Code: schema.ExitRunner, Err: err}
	case len(sealed.Tampered) > 0:
		return tellTampered(r.say, sealed)
	case unwritten != nil:
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(unwritten, "the bundle is whole: %s", sealed.Path)}
	case recorded != nil:
		return console.ExitError{Code: schema.ExitRunner,
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
			names = append(names, schema.OneLine(c.Name))
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

// writeSealed adds to the file of --result what is known only after the sealing.
func (r *recording) writeSealed(result *schema.Result, sealed archive.Sealed) {
	if sealed.Path != "" {
		result.Bundle, result.Identity = filepath.Base(sealed.Path), sealed.Identity
	}
	if err := r.out.write(result, r.redactor); err != nil {
		r.say.Warning("the file of --result does not name the sealed bundle: %v", err)
	}
}

// sealHint returns the hint for a run that could not be sealed.
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

// outputs are the files that a run leaves, opened before its command starts.
type outputs struct {
	bundle *archive.Output
	result *archive.Output // nil without --result
}

// openOutputs opens the files. The error has a hint.
func openOutputs(ctx context.Context, a *app, f *runFlags, bundle string) (_ *outputs, err error) {
	o := &outputs{}
	again := false
	err = archive.MakePlace(filepath.Dir(bundle))
	switch {
	case err != nil:
		err = fmt.Errorf("output %s: %w", bundle, err)
	case f.force:
		o.bundle, err = archive.OpenOutput(bundle, true)
	default:
		o.bundle, again, err = archive.OpenOutputAgain(bundle)
	}
	if again {
		a.say.Info("%s is the bundle of an earlier run: this run replaces it", schema.OneLine(bundle))
	}
	if err == nil && f.result != "" {
		o.result, err = archive.OpenOutput(archive.Follow(f.result), true)
	}
	switch {
	case err == nil:
		return o, nil
	case errors.Is(err, archive.ErrOutputExists):
		err = console.WithHint(err, "choose another name with -o, or replace it with --force")
	case errors.Is(err, syscall.EFBIG):
		err = console.WithHint(err, "raise the file size limit (ulimit -f)")
	default:
		err = console.WithHint(err, "name a file that can be written")
	}
	o.close()
	return nil, err
}

func (o *outputs) close() {
	for _, out := range []*archive.Output{o.bundle, o.result} {
		if out != nil {
			out.Close()
		}
	}
}

// write writes result.json to the file of --result, if there is one.
func (o *outputs) write(result *schema.Result, r *redact.Redactor) error {
	if o.result == nil {
		return nil
	}
	data, err := schema.Document(result)
	if err != nil {
		return err
	}
	if err := o.result.WriteFile(r.JSON(schema.ResultPath, data)); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
