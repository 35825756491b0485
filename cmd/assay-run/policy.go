package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

func policyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Explain a policy, print a profile, learn the smallest policy of runs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policyCheck(a), policyShow(a), policyLearn(a))
	return cmd
}

func policyShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show PROFILE",
		Short: "Print a built-in profile: " + strings.Join(sandboxfile.Builtins(), ", "),
		Args:  one("a profile", "go"),

		ValidArgs: sandboxfile.Builtins(),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := sandboxfile.Builtin(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, p.Text)
			return err
		},
	}
}

func policyLearn(a *app) *cobra.Command {
	var unverified bool
	cmd := &cobra.Command{
		Use:   "learn [flags] BUNDLE...",
		Short: "Print the smallest policy that allows what runs did",
		Long: `learn reads what runs wrote, connected to and were denied, and prints the smallest
policy in mode workspace-write that allows all of it. learn needs the kernel layer, and
cannot learn what the layer missed. Read the policy before you use it: it allows what
the run did, even if the run should not have done it.

"-" reads a bundle from standard input.`,
		Example: "  assay-run -o run.tar.gz -- ./agent.sh\n  assay-run policy learn run.tar.gz > policy.yaml",
		Args:    someBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			l := sandbox.NewLearner()
			err := eachBundle(cmd.Context(), a, args, reading{unverified: unverified}, func(b *view.Bundle) error {
				return learn(cmd.Context(), l, b)
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, l.Text())
			return err
		},
	}
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also learn from bundles that do not verify")
	return cmd
}

func learn(ctx context.Context, l *sandbox.Learner, b *view.Bundle) error {
	if b.Docs.Health.KernelLayer == schema.Absent {
		return console.WithHint(fmt.Errorf("%s has no kernel layer to learn from", b.Name),
			"record the run on a host where assay-run doctor reports kernel observation")
	}
	l.Run(b.Docs.Run.Workdir, b.Docs.Run.Homes["HOME"], b.Docs.Policy)
	for it, err := range b.Items(ctx, schema.KernelPath, schema.PolicyPath) {
		switch {
		case err != nil:
			return console.WithHint(err, "run assay-run verify %s", b.Name)
		case it.Kernel != nil:
			l.Kernel(it.Kernel)
		default:
			l.Policy(it.Policy)
		}
	}
	return nil
}

// policyCheckFlags are the flags of policy check.
type policyCheckFlags struct {
	json            bool
	profiles        []string
	tool, arguments string
	state           keyValues
}

func policyCheck(a *app) *cobra.Command {
	f := &policyCheckFlags{}
	cmd := &cobra.Command{
		Use:   "check [flags] FILE [PATH...]",
		Short: "Explain what a policy, or srt settings, allow in this directory",
		Long: `check reads a policy as a run would, and explains what it allows in the current
directory for the current user. If the file cannot be used, check names the line at
fault and exits with 125.

With paths, check says what applies to each, and which rule says so. The rule for the
most specific path decides; a rule that names the path beats a pattern that matches it.

With --tool, check says whether the policy allows one tool call, without making it. It
prints "allow" or "deny", and then what each rule that covers the call says about it.
It exits with 1 if the call is denied. check assumes that this is the run's first call:
rate limits have counted nothing, and the run has only the states that --state names.`,
		Example: "  assay-run policy check policy.yaml\n  assay-run policy check --json ~/.srt-settings.json\n  " +
			"assay-run policy check --tool read_file --arguments '{\"path\": \"/etc/passwd\"}' policy.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.WithHint(errors.New("a policy file is missing"), "write it after the flags, "+
					"as in: assay-run policy check policy.yaml")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return explainPaths(a, args[0], args[1:], f)
			}
			if !cmd.Flags().Changed("tool") {
				if f.arguments != "" || len(f.state) > 0 {
					return console.WithHint(errors.New("--arguments and --state describe a tool call"),
						"name the tool with --tool")
				}
				return explainPolicy(a, args[0], f)
			}
			return explainCall(a, args[0], f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.StringArrayVar(&f.profiles, "profile", nil, "add the profile `NAME` below the policy; may be repeated")
	fs.StringVar(&f.tool, "tool", "", "say whether the policy allows a call of the tool `NAME`")
	fs.StringVar(&f.arguments, "arguments", "", "the call's arguments, as `JSON`")
	fs.Var(&f.state, "state", "assume that the run has this state, as in verdict=pass; may be repeated")
	return cmd
}

// explainPolicy prints what a policy file means here.
func explainPolicy(a *app, path string, f *policyCheckFlags) error {
	file, err := loadPolicy(a.say, path)
	if err != nil {
		return err
	}
	spec := specfile.New()
	spec.Profiles, spec.Policy = f.profiles, path
	p, err := runner.Profile(spec, file)
	if err != nil {
		return fmt.Errorf("policy %s: %w", path, err)
	}
	if f.json {
		return a.printDocument(p)
	}
	text := p.Explain()
	if denials := file.Denials(); len(denials) > 0 {
		text = strings.Replace(text, "nothing is restricted", "files and network are not restricted", 1) +
			strings.Join(denials, "\n") + "\n"
	}
	_, err = fmt.Fprint(a.stdout, text)
	return err
}

// explainPaths prints what a policy says about paths.
func explainPaths(a *app, path string, paths []string, f *policyCheckFlags) error {
	p, err := profileOf(a, path, f)
	if err != nil {
		return err
	}
	var found []sandbox.Effect
	for _, at := range paths {
		e, err := p.Explains(at)
		if err != nil {
			return err
		}
		found = append(found, e)
	}
	if f.json {
		return a.printDocument(found)
	}
	w := newTable(a.stdout)
	for _, e := range found {
		fmt.Fprintf(w, "%s\t%q\t%s\n", e.Access, e.Target, e.Because())
	}
	return w.Flush()
}

// profileOf is what a policy file means here.
func profileOf(a *app, path string, f *policyCheckFlags) (*sandbox.Profile, error) {
	file, err := loadPolicy(a.say, path)
	if err != nil {
		return nil, err
	}
	spec := specfile.New()
	spec.Profiles, spec.Policy = f.profiles, path
	p, err := runner.Profile(spec, file)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	return p, nil
}

// explainCall decides one tool call, and says why.
func explainCall(a *app, path string, f *policyCheckFlags) error {
	switch arguments := jsontext.Value(f.arguments); {
	case f.tool == "" || len(f.tool) > policyfile.MaxName:
		return fmt.Errorf("--tool: a tool's name has 1 to %d bytes", policyfile.MaxName)
	case f.arguments != "" && !arguments.IsValid():
		return console.WithHint(errors.New("--arguments: not valid JSON, or a key is repeated"),
			`write an object in quotes, as in --arguments '{"path": "/tmp"}'`)
	}
	file, err := loadPolicy(a.say, path)
	if err != nil {
		return err
	}
	e := policy.NewSet(file).Explain(&policy.Call{
		Tool: f.tool, Params: []byte(f.arguments), State: func(key string) string { return f.state[key] },
	})
	if f.json {
		err = a.printDocument(e)
	} else {
		err = printRulings(a, e)
	}
	if err == nil && e.Decision == "deny" {
		return console.ExitError{Code: 1}
	}
	return err
}

func printRulings(a *app, e policy.Explanation) error {
	w := newTable(a.stdout)
	if e.Rule != "" {
		fmt.Fprintf(w, "%s: rule %q denies this call of %q\n", e.Decision, e.Rule, e.Tool)
	} else {
		fmt.Fprintf(w, "%s: no rule denies this call of %q\n", e.Decision, e.Tool)
	}
	for _, r := range e.Rulings {
		param := ""
		if r.Param != "" {
			param = fmt.Sprintf("%q", r.Param)
		}
		fmt.Fprintf(w, "%s\t%q\t%s\t%s\t%s\n", r.Decision, r.Rule, r.Kind, param, r.Reason)
	}
	return w.Flush()
}
