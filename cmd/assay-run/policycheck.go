package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/policy"
)

// policyCheckFlags are the flags of policy check.
type policyCheckFlags struct {
	json            bool
	profiles        []string
	tool, arguments string
	state           keyValues
}

func (a *app) policyCheck() *cobra.Command {
	f := &policyCheckFlags{}
	cmd := &cobra.Command{
		Use:   "check [flags] FILE",
		Short: "Explain what a policy, or srt settings, allow in this directory",
		Long: `check reads a policy as a run would, and explains what it allows in the current
directory for the current user. If the file cannot be used, check names the line at
fault and exits with 125.

With --tool, check says whether the policy allows one tool call, without making it. It
prints "allow" or "deny", and then what each rule that covers the call says about it.
It exits with 1 if the call is denied. check assumes that this is the run's first call:
rate limits have counted nothing, and the run has only the states that --state names.`,
		Example: "  assay-run policy check policy.yaml\n  assay-run policy check --json ~/.srt-settings.json\n  " +
			"assay-run policy check --tool read_file --arguments '{\"path\": \"/etc/passwd\"}' policy.yaml",
		Args: one("a policy file", "policy.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("tool") {
				if f.arguments != "" || len(f.state) > 0 {
					return console.WithHint(errors.New("--arguments and --state describe a tool call"),
						"name the tool with --tool")
				}
				return a.explainPolicy(args[0], f)
			}
			return a.explainCall(args[0], f)
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
func (a *app) explainPolicy(path string, f *policyCheckFlags) error {
	file, err := a.loadPolicy(path)
	if err != nil {
		return err
	}
	spec := runner.New()
	spec.Profiles, spec.Policy = f.profiles, path
	p, err := spec.Profile(file)
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

// explainCall decides one tool call, and says why.
func (a *app) explainCall(path string, f *policyCheckFlags) error {
	switch arguments := jsontext.Value(f.arguments); {
	case f.tool == "" || len(f.tool) > policy.MaxName:
		return fmt.Errorf("--tool: a tool's name has 1 to %d bytes", policy.MaxName)
	case f.arguments != "" && !arguments.IsValid():
		return console.WithHint(errors.New("--arguments: not valid JSON, or a key is repeated"),
			`write an object in quotes, as in --arguments '{"path": "/tmp"}'`)
	}
	file, err := a.loadPolicy(path)
	if err != nil {
		return err
	}
	e := policy.NewSet(file).Explain(&policy.Call{
		Tool: f.tool, Params: []byte(f.arguments), State: func(key string) string { return f.state[key] },
	})
	if f.json {
		err = a.printDocument(e)
	} else {
		err = a.printRulings(e)
	}
	if err == nil && e.Decision == "deny" {
		return console.ExitError{Code: 1}
	}
	return err
}

func (a *app) printRulings(e policy.Explanation) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
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
