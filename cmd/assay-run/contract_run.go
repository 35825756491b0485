package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// contractRunning returns the subcommands of contract that run other programs.
func contractRunning(a *app) []*cobra.Command {
	return []*cobra.Command{contractDeriveCommand(a), contractCheckCommand(a)}
}

func contractDeriveCommand(a *app) *cobra.Command {
	var o contract.DeriveOptions
	var generator, output string
	cmd := &cobra.Command{
		Use:   "derive --intent TEXT --generator CMD [flags]",
		Short: "Have a model write a contract and correct it until it is valid",
		Long: `derive asks a generator for a contract. The generator is a shell command that reads
a prompt on stdin and prints a model's answer. If the answer is not a contract, or
has problems, the next prompt lists what to fix.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if generator == "" {
				return console.WithHint(errors.New("no generator given"),
					"give a command that reads a prompt and prints an answer: --generator 'llm --no-stream'")
			}
			if o.MaxAttempts < 1 {
				return console.WithHint(fmt.Errorf("--max-attempts is %d", o.MaxAttempts), "use 1 or more")
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			o.Generator = contract.CommandGenerator(generator, a.stderr)
			o.Failed = func(attempt int, err error) { a.say.Info("attempt %d: %v", attempt, err) }
			o.Ignored = func(keys []string) {
				a.say.Warning("the answer has keys that a contract does not have; they were left out: %s",
					strings.Join(keys, ", "))
			}
			c, err := contract.Derive(ctx, o)
			if errors.Is(err, context.Canceled) {
				return console.ExitError{Code: 128 + int(syscall.SIGINT), Err: errors.New("interrupted")}
			} else if err != nil {
				return err
			}
			return writeContract(a, c, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Intent, "intent", "", "derive the contract from `TEXT`, the task in words")
	f.StringVar(&generator, "generator", "", "shell command `CMD` that reads a prompt on stdin and prints an answer")
	f.IntVar(&o.MaxAttempts, "max-attempts", contract.DefaultMaxAttempts, "ask the generator at most `N` times")
	f.StringVar(&o.RepoDir, "repo", "", "summarise the top level of `DIR` in the prompt")
	f.StringVarP(&output, "output", "o", "",
		"write to `FILE`, as YAML if it ends in .yaml or .yml, else as JSON (default stdout)")
	return cmd
}

// writeContract writes c to a file, or to stdout.
func writeContract(a *app, c *contractfile.Contract, output string) error {
	format := config.JSON
	if ext := strings.ToLower(filepath.Ext(output)); ext == ".yaml" || ext == ".yml" {
		format = config.YAML
	}
	data, err := contractfile.Encode(c, format)
	if err != nil {
		return err
	}
	if output == "" || output == "-" {
		_, err = a.stdout.Write(data)
		return err
	}
	if err := console.WriteFile(output, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	return nil
}

func contractCheckCommand(a *app) *cobra.Command {
	var spec specfile.Spec
	var env environment
	var asJSON bool
	kept := &keptFlags{}
	cmd := &cobra.Command{
		Use:   "check [flags] FILE | check --bundle BUNDLE --workspace CLEAN [flags] [FILE]",
		Short: "Evaluate a contract now, without an agent",
		Long: `check runs every check of a contract in a directory, each in a cgroup of its own
where the host allows. Exit status: 0 all pass; 122 one fails; 123 one could not be
run; 125 the contract cannot be evaluated at all.

With --bundle it judges what the run of a bundle left in its workspace
(--workspace-changes). CLEAN is a directory with the workspace as it was before the run.
check makes the run's changes in a copy of CLEAN, and runs the checks there as
--strict-checks does. To the checks, the home directories of the agent and of the user
are empty. FILE replaces the bundle's contract. The verdict goes into a new bundle that
names the identity of the old one.`,
		Example: `  assay-run contract check done.yaml
  assay-run contract check --bundle run.tar.gz --workspace clean -o judged.tar.gz`,
		Args: kept.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			env.overlay(&spec.Env)
			if kept.bundle != "" {
				return checkKept(ctx, a, strings.Join(args, ""), &spec, kept, asJSON)
			}
			return checkContract(ctx, a, args[0], &spec, asJSON)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&spec.Workdir, "workdir", ".", "run the checks in `DIR`")
	fs.Var(&env, "env", "set the environment variable `K=V`; K alone takes the value it has here; may be repeated")
	fs.BoolVar(&spec.StrictChecks, "strict-checks", false,
		"give each check a fresh home, cache and temporary directory, a clean environment and no network")
	fs.BoolVar(&asJSON, "json", false, "print the results as JSON, in the form of a bundle's contract.json")
	fs.StringVar(&kept.bundle, "bundle", "", "judge what the run of `BUNDLE` left in its workspace")
	fs.StringVar(&kept.workspace, "workspace", "", "make the changes in a copy of `CLEAN`")
	fs.StringVarP(&kept.output, "output", "o", "",
		"write the new bundle to `NEW` (default BUNDLE with \".checked\" in its name)")
	fs.BoolVar(&kept.force, "force", false, "replace NEW if it exists")
	fs.StringArrayVar(&kept.redact.files, "secret-file", nil,
		"redact the secret in `FILE` from the outputs of the checks; may be repeated")
	fs.StringArrayVar(&kept.redact.env, "secret-env", nil,
		"also redact the value of the environment variable `NAME` (a glob); may be repeated")
	fs.StringVar(&kept.redact.key, "redaction-key", "",
		"tag redacted values with the key in `FILE`, or with a new key if FILE is \"ephemeral\" "+
			"(default the host's key)")
	return cmd
}

func checkContract(ctx context.Context, a *app, file string, spec *specfile.Spec, asJSON bool) (err error) {
	dir, err := filepath.Abs(spec.Workdir)
	if err != nil {
		return err
	}
	session, err := newCheckSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	opts := contract.PrepareOptions{Path: file, Workdir: dir, Executor: session.executor(dir, spec.Env)}
	if spec.StrictChecks {
		spec.Contract = file // so that checks find the cache that its baselines kept
		strict, err := runner.NewStrictExecutor(spec, session.Session, session.guard, nil)
		if err != nil {
			return err
		}
		defer strict.Close()
		opts.Executor = strict
	}
	if !asJSON {
		opts.Options.Completed = func(_ contract.Phase, c schema.Check, r schema.CheckResult) {
			printCheck(a.stdout, c, r)
		}
	}
	doc, err := contract.EvaluateFile(ctx, opts)
	if doc == nil {
		return err
	}
	if err != nil {
		return console.ExitError{Code: 128 + int(syscall.SIGINT), Err: errors.New("interrupted")}
	}
	doc.StrictChecks = spec.StrictChecks
	if asJSON {
		err = a.printDocument(doc)
	} else {
		_, err = fmt.Fprintf(a.stdout, "verdict: %s\n", doc.Verdict)
	}
	if code := contract.ExitCode(0, doc.Verdict, false); err == nil && code != 0 {
		return console.ExitError{Code: code}
	}
	return err
}

// interruptible returns a context that ends with the signals that ask a program to
// end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
