package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

func runCommand(a *app) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG...]",
		Short: "Run a command, record it and seal the bundle (the default command)",
		Args:  commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && f.specFile == "" && f.spec.Agent == "" && f.spec.AgentFile == "" {
				if cmd.Flags().NFlag() == 0 && cmd == cmd.Root() && cmd.ArgsLenAtDash() < 0 {
					return cmd.Help()
				}
				return console.WithHint(specfile.ErrEmptyCommand, "write it after --, as in: assay-run -- make test")
			}
			a.say.Quiet = f.quiet
			if err := runner.CheckHost(); err != nil && !f.dryRun {
				return noRuns(err)
			}
			spec, err := f.effective(args)
			if err != nil {
				return console.WithHint(err, "see assay-run run --help")
			}
			return recordRun(cmd.Context(), a, spec, f)
		},
		DisableFlagsInUseLine: true,
	}
	f.register(cmd.Flags())
	console.Completes(cmd, runValues())
	return cmd
}

// recordRun records one run and ends with its exit code.
func recordRun(ctx context.Context, a *app, spec *specfile.Spec, f *runFlags) error {
	output, err := f.bundle(spec.RunID)
	if err != nil {
		return nothingRun(err)
	}
	if err := f.lifeline.check(); err != nil {
		return nothingRun(err)
	}
	var checks *contractfile.Loaded
	var agreed schema.ContractDefinition
	if spec.Contract != "" {
		if checks, err = contractfile.LoadValid(spec.Contract); err != nil {
			return nothingRun(console.WithHint(err, "%s",
				fileHint(err, "fix the file; assay-run contract validate lists its problems")))
		}
		agreed = schema.ContractDefinition(*checks.Contract)
	}
	var doc *schema.Evaluation
	if spec.Evaluation != "" {
		if doc, err = evalfile.Load(spec.Evaluation); err != nil {
			return nothingRun(console.WithHint(err, "fix the file; docs/evaluation.md describes it"))
		}
		spec = spec.Evaluated(doc)
	}
	if err := warnOfGlobs(a, spec, doc, &agreed); err != nil {
		return nothingRun(err)
	}
	rules, err := loadPolicy(a.say, spec.Policy)
	if err != nil {
		return nothingRun(console.WithHint(err, "%s", fileHint(err, "fix the file, or omit --policy")))
	}
	if err := spec.CheckModelPolicy(rules); err != nil {
		return nothingRun(console.WithHint(err, "add --model-gateway, or take the key out of the policy"))
	}
	replay, err := loadReplay(ctx, spec.Model.Replay)
	if err != nil {
		return nothingRun(err)
	}
	if omitted := spec.ArgumentsOmitted(); len(omitted) > 0 && !a.say.Quiet {
		program := spec.Recipe.Command[0]
		a.say.Advice("name "+program+" as a word of the command, or give it these arguments yourself",
			"the command does not name %s, so it gets none of the arguments that the recipe of %s has: %s",
			program, spec.Recipe.Name, view.QuoteArgs(omitted))
	}
	if f.dryRun {
		return printDryRun(a, spec, rules, output)
	}
	audit, err := openAudit(a, f.audit)
	if err != nil {
		return nothingRun(console.WithHint(err, "name a file that can be written"))
	}
	opt := runner.Options{Policy: rules, Evaluation: doc, Contract: checks, Replay: replay.answers,
		Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr}
	abandoned := false // if so, what is still in use stays open until this process ends
	messages := queueMessages(a)
	defer func() {
		if !abandoned {
			messages.end()
		}
	}()
	if spec.Kernel != specfile.KernelOff {
		expectEvents()
	}
	if err := runner.CheckDescriptors(spec.Kernel != specfile.KernelOff); err != nil {
		return nothingRun(descriptorHint(err))
	}
	opt.Contained = runner.Contain(spec, opt) // while what follows waits for the disk
	defer func() {
		if !abandoned {
			opt.Contained.Close()
		}
	}()
	r, err := prepareRecording(ctx, a, spec, f, output, rules)
	if err != nil {
		return nothingRun(err)
	}
	defer func() {
		if !abandoned {
			r.close()
		}
	}()
	if replay.answers != nil {
		r.record.Model.Routes, r.record.Model.Replay = replay.answers.Routes(), replay.identity
	}
	caught := signals.Catch()
	if err := r.start(); err != nil {
		caught.Stop()
		return nothingRun(err)
	}
	opt.Contained.Begin()
	ctx = f.lifeline.hold(ctx)

	began := time.Now()
	var health *schema.ObservationHealth
	var freeing sync.WaitGroup // at the same time as the sealing
	opt.Recorder, opt.Redactor, opt.Audit = r.spool, r.redactor, redactSinks(audit, r.redactor)
	opt.ScratchDir, opt.Evidence = r.spool.Dir(), []string{filepath.Dir(r.spool.Dir())}
	opt.TurnsFile = filepath.Join(r.spool.Dir(), filepath.FromSlash(schema.TurnsPath))
	opt.Signals, opt.Ready = caught.C, func() error { caught.Wait(); return r.spool.OnDisk() }
	checking := &checkBar{w: a.stderr, quiet: a.say.Quiet}
	opt.OnCheck = checking.check
	opt.OnHealth = func(h *schema.ObservationHealth) { health = h }
	opt.OnContract = func(c *schema.Contract) { tellContract(a.say, c) }
	opt.OnOutputError = func(_ string, err error) { tellOutput(a.say, err) }
	opt.OnSwept = func(swept []cgroup.Swept) { tellSwept(a.say, swept) }
	opt.OnRealHome = func(why string) {
		a.say.Info("the home directory is real, and the command can write in it only what a rule allows: %s", why)
	}
	opt.OnSearch = func(dir string) { tellSearch(a.say, dir) }
	lost := &losses{say: a.say}
	opt.OnLoss = lost.add
	opt.Freeing = &freeing
	refused := &refusals{say: a.say, terminal: console.Terminal(a.stderr)}
	opt.OnDenied = refused.add
	result, recording := runner.Run(ctx, spec, opt)
	end := &ending{app: a, result: result, grace: spec.Grace, messages: messages, signals: caught.C,
		told: caught.Ended()}
	if spec.Timeout > 0 {
		end.timeout = time.Until(began.Add(spec.Timeout))
	}
	abandoned, err = end.attend(ctx, func(ctx context.Context) error {
		defer freeing.Wait()
		defer messages.Flush()
		tellHealth(a.say, health, result, lost.end())
		tellStartup(a.say, health)
		tellLimits(a.say, result)
		tellReplay(a.say, result)
		tellModel(a.say, spec, result)
		refused.end()
		return tellFailure(a.say, r.seal(ctx, result, recording, end.released))
	})
	return err
}

// warnOfGlobs warns of globs of the evaluation file, which may be nil, and of the contract that can match nothing.
func warnOfGlobs(a *app, spec *specfile.Spec, doc *schema.Evaluation, agreed *schema.ContractDefinition) error {
	if doc == nil && len(agreed.Protected) == 0 {
		return nil
	}
	at, err := spec.Absolute()
	if err != nil {
		return err
	}
	asked := &schema.EvaluationDefinition{}
	if doc != nil {
		asked = &doc.Evaluation
	}
	start := evalfile.Start(asked, at.Workdir, "", agreed.Absolute(at.Workdir))
	if doc != nil && spec.Containers && asked.InContainer(at.Workdir, start) {
		start.Absent = nil // assay-run looks into the container when that starts
	}
	for _, glob := range start.Absent {
		if slices.Contains(start.Protected, glob) {
			a.say.Warning("nothing can match %q of the contract, so it protects nothing", glob)
		} else {
			a.say.Warning("nothing can match %q of the evaluation file: its rule cannot pass", glob)
		}
	}
	return nil
}

// printDryRun prints the run as a spec file, and what its policy means to people.
func printDryRun(a *app, spec *specfile.Spec, rules *policyfile.File, output string) error {
	absolute, err := spec.Absolute()
	if err != nil {
		return nothingRun(nowhere(err))
	}
	if _, err := absolute.MarshalJSON(); err != nil {
		return console.WithHint(fmt.Errorf("the run cannot be printed as a spec: %w", err),
			"a spec file is UTF-8 text: give other bytes on the command line")
	}
	profile, err := runner.Profile(spec, rules)
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
		a.say.Info("containers that docker and podman make would be in the run, with $%s as their cgroup parent",
			runner.EnvCgroupParent)
	}
	return a.printDocument(absolute)
}
