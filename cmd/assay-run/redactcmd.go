package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema/redact"
)

// laterFlags say what to take out of a sealed bundle.
type laterFlags struct {
	redact       redactFlags
	output       string
	force        bool
	rules, files []string
}

func (a *app) redactCommand() *cobra.Command {
	f := &laterFlags{}
	cmd := &cobra.Command{
		Use:   "redact BUNDLE -o NEW [flags]",
		Short: "Copy a sealed bundle without its secrets",
		Long: `redact writes a new bundle without the secrets that it finds: those that you name,
those that your rules match, and those that every run looks for (passwords in
arguments, headers and URLs, and the credentials of well-known providers). The new
bundle verifies. Its observation-health.json names the old bundle's identity and says
what was removed. redact does not change the old bundle. The old bundle's signature
does not cover the new bundle: sign that too.

A rule is NAME=PATTERN on the command line, and NAME, a space and PATTERN on a line of a
rule file. NAME has lower-case letters, digits, "-" and "_". PATTERN is in RE2's syntax.
redact replaces what the pattern's first group matches, or the whole match if there is
no group.`,
		Example: `  assay-run redact run.tar.gz -o public.tar.gz --secret-file token.txt
  assay-run redact run.tar.gz -o public.tar.gz --rule 'customer=cust-[0-9]{6}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return console.WithHint(fmt.Errorf("redact needs one bundle"),
					"as in: assay-run redact run.tar.gz -o public.tar.gz")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output == "" {
				return console.WithHint(fmt.Errorf("redact needs the name of the new bundle"), "give it with -o NEW")
			}
			return a.redactBundle(cmd.Context(), args[0], f)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.output, "output", "o", "", "write the new bundle to `NEW`")
	fs.BoolVar(&f.force, "force", false, "replace NEW if it exists")
	fs.StringArrayVar(&f.rules, "rule", nil, "also redact what `NAME=PATTERN` matches; may be repeated")
	fs.StringArrayVar(&f.files, "rule-file", nil, "also redact what the rules in `FILE` match; may be repeated")
	fs.StringArrayVar(&f.redact.files, "secret-file", nil, "also redact the secret in `FILE`; may be repeated")
	fs.StringArrayVar(&f.redact.env, "secret-env", nil,
		"also redact the value that the environment variable `NAME` (a glob) has now; may be repeated")
	fs.StringVar(&f.redact.key, "redaction-key", "",
		"tag redacted values with the key in `FILE`, or with a new key if FILE is \"ephemeral\" "+
			"(default the host's key)")
	return cmd
}

func (a *app) redactBundle(ctx context.Context, bundle string, f *laterFlags) error {
	r, err := f.redact.open()
	if err != nil {
		return err
	}
	in, err := archive.Open(bundle)
	if err != nil {
		return problemExit(err, "assay-run verify %s lists every problem", bundle)
	}
	r.Keep(in.RunID())
	rules, err := f.parse()
	if err != nil {
		return console.WithHint(err, "a rule is a name and an RE2 pattern: see assay-run redact --help")
	}
	r.Use(rules)
	if err := a.addFiles(r, f.redact.files); err != nil {
		return err
	}
	a.tellShort(r.AddEnv(os.Environ(), f.redact.env))
	opt := archive.RedactOptions{By: "assay-run " + version(), Replace: f.force}
	for _, rule := range rules {
		opt.Rules = append(opt.Rules, rule.Name)
	}
	sealed, err := archive.Redact(ctx, bundle, f.output, r, opt)
	switch {
	case errors.Is(err, archive.ErrNotVerified):
		return problemExit(err, "assay-run verify %s lists every problem", bundle)
	case errors.Is(err, archive.ErrOutputExists):
		return console.WithHint(err, "choose another name with -o, or replace it with --force")
	case err != nil:
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s; identity %s, from %s\n", console.Printable(f.output),
		removedWords(sealed.Removed), sealed.Identity, sealed.Removed.From)
	return err
}

// problemExit has the exit status of a bundle that is at fault, and the hint.
func problemExit(err error, format string, args ...any) error {
	var p *archive.Problem
	if errors.As(err, &p) {
		return console.ExitError{Code: exitStatus[p.Class], Err: console.WithHint(err, format, args...)}
	}
	return err
}

// parse reads the rules of the command line and of files.
func (f *laterFlags) parse() (rules []redact.Rule, err error) {
	for _, text := range f.rules {
		name, pattern, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("--rule %.80q is not NAME=PATTERN", text)
		}
		rule, err := redact.ParseRule(name, pattern)
		if err != nil {
			return nil, fmt.Errorf("--rule %.80q: %w", text, err)
		}
		rules = append(rules, rule)
	}
	for _, file := range f.files {
		text, err := readAtMost(file, redact.MaxRules)
		if err != nil {
			return nil, err
		}
		more, err := redact.ParseRules(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rules = append(rules, more...)
	}
	return rules, nil
}
