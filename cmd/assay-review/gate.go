package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// gateCodes are the exit codes of gate for a judgement.
var gateCodes = map[judge.State]int{judge.Pass: 0, judge.Fail: 1, judge.Unknown: 2}

func gateCommand(a *app) *cobra.Command {
	var rulesFile, evaluationFile, format, output string
	var unverified, init bool
	cmd := &cobra.Command{
		Use:   "gate --rules FILE [flags] BUNDLE...",
		Short: "Judge bundles by rules",
		Long: `gate judges bundles by the rules in a YAML file:

  rules:
  - only_workspace_writes: true          # or {also: ["/tmp/**"]}
  - only_hosts: [resolvers, "api.example.com", "*.pypi.org", "10.0.0.0/8"]
  - only_programs: ["python3*", "/usr/bin/**"]  # a bare name allows no program that the run made
  - no_privileged: true                  # setuid, mount, ptrace, bpf, ...
  - closed_book: true                    # the command could not look its answer up
  - no_new_startup: true                 # nothing that git, shells, editors or agents obey is new
  - contract_passed: true
  - no_undeclared_actions: true          # nothing was done outside of reported tool calls;
                                         # {agent: claude-code} (or codex, gemini-cli, opencode)
                                         # allows what that program does itself; the keys
                                         # paths and hosts allow more
  - no_new_capability_against: good.tar.gz
  - expr: 'run.exit_code == 0 && run.seconds < 600.0'
  - expr: {name: no_shell_history, of: events, never: 'path.endsWith("_history")'}
  - expr: {name: it_tests, of: processes, some: 'argv[0] == "pytest"'}
  allow_unknown: [only_hosts]

"resolvers" allows DNS servers, and questions for the allowed names. "assay-run query
--types" lists the variables of expressions. If a bundle's health does not support a
rule, the result is unknown and says what is missing. The gate then passes only if
allow_unknown names the rule, or each system call that makes the rule unknown, such as
"call setsockopt IP_ADD_MEMBERSHIP" or "call setsockopt".

--rules builtin:evaluation asks whether an agent under evaluation cheated: by the
evaluation file that the run was given (assay-run --evaluation), or by that of
--evaluation FILE. docs/evaluation.md describes each of its rules.

--rules builtin:ci has the rules for a run in CI. The run wrote only in the workspace, in
/tmp, in /dev/shm and in its private home. It left nothing new that git, shells, editors or
agents obey. It reached only hosts that its policy or its agent's recipe declares. It exited
with 0. If it had a contract, the contract passed. If it had an evaluation file, no rule fails.

In GitHub Actions, gate also writes annotations and a job summary.

Exit status: 0 all pass; 1 one fails; 2 one is unknown and none fails; 3 the rules
are invalid; 4 a bundle cannot be read or does not verify.`,
		Example: `  assay-run gate --rules rules.yaml run.tar.gz
  assay-run gate --init good.tar.gz > rules.yaml
  assay-run gate --rules rules.yaml --format junit -o gate.xml nightly/*.tar.gz
  assay-run gate --rules builtin:evaluation --evaluation evaluation.yaml run.tar.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case init && len(args) != 1:
				return a.usage(cmd, errors.New("gate --init takes one bundle"))
			case !init && rulesFile == "":
				return a.usage(cmd, errors.New("--rules is missing"))
			case evaluationFile != "" && rulesFile != judge.BuiltinEvaluation:
				return a.usage(cmd, fmt.Errorf("--evaluation needs --rules %s", judge.BuiltinEvaluation))
			case len(args) == 0:
				return a.usage(cmd, errors.New("gate takes at least one bundle"))
			case gateFormats[format] == nil:
				return a.usage(cmd, fmt.Errorf("--format is %q, want text, json, junit, ctrf, sarif or github", format))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if init {
				return printInitialRules(ctx, a, args, !unverified)
			}
			rules, err := loadRules(ctx, rulesFile, evaluationFile)
			if err != nil {
				return console.ExitError{Code: exitRules,
					Err: console.WithHint(err, "assay-run gate --help shows a rule file")}
			}
			defer rules.Close()
			opt := rules.Reading()
			opt.Unverified = unverified
			set, err := a.openWith(ctx, args, opt)
			if err != nil {
				return err
			}
			defer set.Close()
			report, err := judge.Judge(ctx, rules, set.Bundles)
			if err != nil {
				return console.ExitError{Code: view.ExitBundle, Err: err}
			}
			if err := writeGate(a, report, set.Bundles, format, output); err != nil {
				return console.ExitError{Code: view.ExitBundle, Err: err}
			}
			if code := gateCodes[report.State]; code != 0 {
				return console.ExitError{Code: code}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&rulesFile, "rules", "",
		"judge by the rules in `FILE`, or by those of builtin:ci or builtin:evaluation")
	fs.StringVar(&evaluationFile, "evaluation", "",
		"with --rules builtin:evaluation, judge by the evaluation `FILE` instead of the bundle's")
	fs.StringVar(&format, "format", "text", "write `FORMAT`: text, json, junit, ctrf, sarif, github")
	fs.StringVarP(&output, "output", "o", "", "write to `FILE`, and the text form to stdout")
	fs.BoolVar(&init, "init", false, "print rules that the run in BUNDLE passes, and judge nothing")
	fs.BoolVar(&unverified, "unverified", false,
		"also judge bundles that do not verify; what they do not show is unknown")
	console.Completes(cmd, map[string][]string{"format": slices.Sorted(maps.Keys(gateFormats))})
	return cmd
}

// states colours what gate prints of a bundle and of each rule.
var states = view.Colours(`^(?:  |\S.*: )(pass)(?:$| )`, `^(?:  |\S.*: )(unknown)(?:$|[ ,])`,
	`^(?:  |\S.*: )(fail)(?:$| )`)

var gateFormats = map[string]func(io.Writer, *judge.Report, []render.Suite) error{
	"text":  func(w io.Writer, r *judge.Report, _ []render.Suite) error { return r.WriteText(w) },
	"json":  func(w io.Writer, r *judge.Report, _ []render.Suite) error { return schema.PrintDocument(w, r) },
	"junit": func(w io.Writer, _ *judge.Report, s []render.Suite) error { return render.WriteJUnit(w, s) },
	"ctrf": func(w io.Writer, _ *judge.Report, s []render.Suite) error {
		return render.WriteCTRF(w, version(), s)
	},
	"sarif": func(w io.Writer, _ *judge.Report, s []render.Suite) error {
		return render.WriteSARIF(w, version(), s)
	},
	"github": func(w io.Writer, _ *judge.Report, s []render.Suite) error { return render.WriteAnnotations(w, s) },
}

// loadRules reads the rules that --rules and --evaluation name.
func loadRules(ctx context.Context, file, evaluation string) (*judge.Rules, error) {
	if file != judge.BuiltinEvaluation {
		return judge.LoadRules(ctx, file)
	}
	return judge.EvaluationRules(evaluation)
}

func printInitialRules(ctx context.Context, a *app, args []string, needVerified bool) error {
	set, err := a.open(ctx, args, needVerified)
	if err != nil {
		return err
	}
	defer set.Close()
	rules, err := judge.InitialRules(ctx, set.Bundles[0])
	if err == nil {
		_, err = a.stdout.Write(rules)
	}
	if err != nil {
		return console.ExitError{Code: view.ExitBundle, Err: err}
	}
	return nil
}

// writeGate writes the report, and in GitHub Actions annotations and a job
// summary beside it.
func writeGate(a *app, r *judge.Report, bundles []*view.Bundle, format, output string) error {
	suites := render.Judged(r, bundles)
	if output != "" {
		if err := console.WriteFile(output, func(w io.Writer) error {
			return gateFormats[format](w, r, suites)
		}); err != nil {
			return err
		}
		format = "text"
	}
	if err := a.print(format, states, func(w io.Writer) error {
		return gateFormats[format](w, r, suites)
	}); err != nil {
		return err
	}
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return nil
	}
	if format == "text" {
		if err := render.WriteAnnotations(a.stdout, suites); err != nil {
			return err
		}
	}
	return jobSummary(a, func(w io.Writer, limit int) error { return render.WriteSummary(w, suites, limit) })
}

// jobSummary appends to the summary of a GitHub Actions job as much as it may
// still hold.
func jobSummary(a *app, write func(io.Writer, int) error) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write the job summary: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		if room := render.MaxGitHubSummary - int(info.Size()); room > 1000 {
			err = write(f, room)
		} else {
			a.say.Warning("the job summary is full; nothing was added to it")
		}
	}
	return errors.Join(err, f.Close())
}
