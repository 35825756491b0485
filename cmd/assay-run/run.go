package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/sign"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Run a command, record it and seal the bundle (the default command)",
		Args:  commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.specFile == "" {
				if cmd.Flags().NFlag() == 0 && cmd == cmd.Root() && cmd.ArgsLenAtDash() < 0 {
					return cmd.Help()
				}
				return console.WithHint(runner.ErrEmptyCommand, "write it after --, as in: assay-run -- make test")
			}
			a.say.Quiet = f.quiet
			if err := runner.CheckHost(); err != nil && !f.dryRun {
				return noRuns(err)
			}
			spec, err := f.effective(args)
			if err != nil {
				return console.WithHint(err, "see assay-run run --help")
			}
			return a.run(cmd.Context(), spec, f)
		},
		DisableFlagsInUseLine: true,
	}
	f.register(cmd.Flags())
	completes(cmd, runValues())
	return cmd
}

// run records one run and ends with its exit code.
func (a *app) run(ctx context.Context, spec *runner.Spec, f *runFlags) error {
	output, err := f.bundle(spec.RunID)
	if err != nil {
		hint := "name a file with --output, or omit --store and unset ASSAY_RUN_STORE"
		if errors.Is(err, archive.ErrOtherFormat) {
			hint = "let the name after --output end in .tar.gz or .tar.zst"
		}
		return console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", hint)
	}
	output, err = filepath.Abs(output)
	if err != nil {
		return nowhere(err)
	}
	record, err := spec.Record(time.Now(), "assay-run "+version(), output)
	if err != nil {
		return nowhere(err)
	}
	if f.result != "" {
		if record.ResultOutput, err = filepath.Abs(f.result); err != nil {
			return nowhere(err)
		}
	}
	if spec.Contract != "" {
		if _, _, err := contract.LoadValid(spec.Contract); err != nil {
			return console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", fileHint(err, "fix the file; assay-run contract validate lists its problems"))
		}
	}
	rules, err := a.loadPolicy(spec.Policy)
	if err != nil {
		return console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", fileHint(err, "fix the file, or omit --policy"))
	}
	if f.dryRun {
		return a.dryRun(spec, rules, output)
	}
	audit, err := a.openAudit(f.audit)
	if err != nil {
		return console.WithHint(fmt.Errorf("nothing was run: %w", err), "name a file that can be written")
	}
	signer, err := f.sign.load()
	if err != nil {
		return console.WithHint(fmt.Errorf("nothing was run: %w", err), "see assay-run sign --help")
	}
	f.sign.hide()
	redactor, err := a.redactor(&f.redact, spec)
	if err != nil {
		return nothingRun(err)
	}
	if record, err = redactRecord(redactor, record); err != nil {
		return nothingRun(err)
	}
	if redactor == nil {
		record.Redaction = schema.RedactionDisabled
	}
	out, err := f.open(output)
	if err != nil {
		return err
	}
	defer out.close()
	spec.Preload()
	signals := catchSignals()
	spool, err := a.createSpool(f, record)
	if err != nil {
		return err
	}
	defer spool.Close()
	spool.SealTo(out.bundle)
	spool.Redact(redactor)

	var health *schema.ObservationHealth
	result, recording := runner.Run(ctx, spec, runner.Options{
		Recorder: spool, Redactor: redactor, ScratchDir: spool.Dir(), Evidence: []string{filepath.Dir(spool.Dir())}, Policy: rules, Audit: redactSinks(audit, redactor),
		TurnsFile: filepath.Join(spool.Dir(), filepath.FromSlash(schema.TurnsPath)),
		Stdin:     a.stdin, Stdout: a.stdout, Stderr: a.stderr,
		Signals: signals.C, Ready: signals.wait, OnContract: a.tellContract, OnHealth: func(h *schema.ObservationHealth) { health = h }, OnOutputError: a.tellOutput,
		OnSwept: a.tellSwept,
		OnLoss:  func(reason schema.Reason) { a.say.Warning("evidence is missing: %s", reason.Message) },
	})
	a.tellHealth(health, result)
	return a.seal(ctx, spool, &record, result, recording, out, signer, redactor)
}

// dryRun prints the run as a spec file, and what its policy means to people.
func (a *app) dryRun(spec *runner.Spec, rules *policy.File, output string) error {
	absolute, err := spec.Absolute()
	if err != nil {
		return nowhere(err)
	}
	if _, err := absolute.MarshalJSON(); err != nil {
		return console.WithHint(fmt.Errorf("the run cannot be printed as a spec: %w", err), "a spec file is UTF-8 text: give other bytes on the command line")
	}
	profile, err := spec.Profile(rules)
	if err != nil {
		return console.WithHint(err, "correct the policy; assay-run policy check FILE explains it")
	}
	a.say.Info("nothing was run; the bundle would be %s", output)
	if profile.Restricted() && !a.say.Quiet {
		if rules != nil {
			a.say.Info("the policy %s (%s) means here:", spec.Policy, rules.Digest)
		}
		if _, err := fmt.Fprint(a.stderr, profile.Explain()); err != nil {
			return err
		}
	}
	if spec.Containers && !a.say.Quiet {
		a.say.Info("docker and podman would get --cgroup-parent=$%s after run and create", runner.EnvCgroupParent)
	}
	return a.printDocument(absolute)
}

// nothingRun is an error from before the command started.
func nothingRun(err error) error {
	var hint console.HintError
	if errors.As(err, &hint) {
		return console.WithHint(fmt.Errorf("nothing was run: %w", hint.Err), "%s", hint.Hint)
	}
	return fmt.Errorf("nothing was run: %w", err)
}

// noRuns says what to do about an error of [runner.CheckHost].
func noRuns(err error) error {
	hint := "run it on Linux"
	if errors.Is(err, runner.ErrNoProc) {
		hint = "mount it with: mount -t proc proc /proc"
	}
	return console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", hint)
}

// nowhere says what to do when the cause of err is that our own directory is gone.
func nowhere(err error) error {
	if _, here := os.Getwd(); here == nil {
		return err
	}
	return console.WithHint(fmt.Errorf("nothing was run: %w", err), "the current directory is gone: change to another, or name absolute paths with -o and --workdir")
}

// fileHint is what to do about a file that cannot be used.
func fileHint(err error, otherwise string) string {
	if errors.Is(err, os.ErrNotExist) {
		return "check the name: it is relative to the current directory, and in a spec file to that file"
	}
	return otherwise
}

func (a *app) createSpool(f *runFlags, record schema.Run) (*archive.Spool, error) {
	dir := f.spoolDir
	if dir == "" {
		var err error
		if dir, err = archive.DefaultSpoolDir(); err != nil {
			return nil, console.WithHint(err, "choose a directory with --spool-dir")
		}
	}
	if f.replace {
		err := archive.Discard(dir, record.RunID)
		if err != nil && !errors.Is(err, archive.ErrNoSpool) {
			return nil, console.WithHint(fmt.Errorf("nothing was run: %w", err), "choose another --run-id")
		}
	}
	spool, err := archive.CreateSpool(dir, record)
	switch {
	case errors.Is(err, archive.ErrExists) && archive.Alive(filepath.Join(dir, record.RunID)):
		return nil, console.WithHint(fmt.Errorf("nothing was run: run %s is still running", record.RunID), "choose another --run-id, or wait for that run")
	case errors.Is(err, archive.ErrExists):
		named := ""
		if f.spoolDir != "" {
			named = "--spool-dir " + query.QuoteArgs([]string{f.spoolDir}) + " "
		}
		return nil, console.WithHint(fmt.Errorf("nothing was run: run %s was interrupted, and its evidence is not sealed yet", record.RunID),
			"seal it with: assay-run recover %s%s; or discard it with --replace; or choose another --run-id", named, record.RunID)
	case err != nil:
		return nil, console.WithHint(fmt.Errorf("nothing was run: %w", err), "choose another directory with --spool-dir")
	}
	return spool, nil
}

// seal turns the spool into the bundle, tells the user, and gives the exit
// code as an error. Evidence that could not be kept is the runner's failure,
// whatever the command did.
func (a *app) seal(ctx context.Context, spool *archive.Spool, record *schema.Run, result *schema.Result, recording error, out *outputs, signer sign.Signer, redactor *redact.Redactor) error {
	ctx = context.WithoutCancel(ctx)
	unwritten := out.write(result, redactor)
	if unwritten != nil { // the bundle says what we exit with
		*result.RunnerExitCode = runner.ExitRunner
		if doc, err := schema.Document(result); err == nil {
			_ = spool.Put(schema.ResultPath, redactor.JSON(schema.ResultPath, doc))
		}
	}
	sealing, bar := console.NewProgress(ctx, a.stderr, "sealing")
	if a.say.Quiet {
		sealing = ctx
	}
	sealed, err := spool.Seal(sealing)
	bar.Done()
	if len(sealed.Tampered) > 0 { // as the bundle has it
		code, source := runner.ExitRunner, schema.SourceRunner
		result.RunnerExitCode, result.ErrorSource = &code, &source
		if verdict := schema.VerdictInconclusive; result.Contract != nil {
			result.Contract = &verdict
		}
		result.Error = &schema.ResultError{Code: archive.CodeTampered, Message: archive.TamperedMessage(sealed.Tampered), Hint: archive.TamperedRemedy}
		unwritten = cmp.Or(unwritten, out.write(result, redactor))
	}
	if sealed.Removed != nil { // the copies of the output are of other lengths now
		a.tellRemoved(sealed.Removed)
		_ = json.Unmarshal(sealed.Result, result)
	}
	if err == nil && signer != nil {
		if _, serr := sign.Bundle(ctx, sealed.Path, sealed.Identity, signer); serr != nil {
			err = console.WithHint(fmt.Errorf("the bundle is whole but not signed: %w", serr), "sign it with assay-run sign: %s", sealed.Path)
		}
	}
	if err != nil {
		*result.RunnerExitCode = runner.ExitRunner
	}
	if unwritten == nil {
		a.writeSealed(out, result, sealed, redactor)
	}
	switch {
	case err != nil && sealed.Path == "":
		return console.ExitError{Code: runner.ExitRunner, Err: console.WithHint(err, "the evidence is kept: free some space, or give that command --output FILE to seal it elsewhere")}
	case err != nil:
		return console.ExitError{Code: runner.ExitRunner, Err: err}
	case len(sealed.Tampered) > 0:
		return a.tampered(sealed)
	case unwritten != nil:
		return console.ExitError{Code: runner.ExitRunner, Err: console.WithHint(unwritten, "the bundle is whole: %s", sealed.Path)}
	case recording != nil:
		return console.ExitError{Code: runner.ExitRunner, Err: console.WithHint(fmt.Errorf("the bundle is incomplete: %w", recording), "see %s", sealed.Path)}
	}
	if result.Error != nil {
		err := fmt.Errorf("%s", result.Error.Message)
		if result.Error.Hint != "" {
			err = console.WithHint(err, "%s", result.Error.Hint)
		}
		a.say.Failure(err)
	}
	verdict := ""
	if result.Contract != nil {
		verdict = "contract " + *result.Contract + notPassed(result.Checks) + "; "
	}
	a.say.Info("%s; %sbundle %s; identity %s", result.Ending(record), verdict, sealed.Path, sealed.Identity)
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
func (a *app) writeSealed(out *outputs, result *schema.Result, sealed archive.Sealed, redactor *redact.Redactor) {
	if sealed.Path != "" {
		result.Bundle, result.Identity = filepath.Base(sealed.Path), sealed.Identity
	}
	if err := out.write(result, redactor); err != nil {
		a.say.Warning("--result says nothing about the sealed bundle: %v", err)
	}
}
