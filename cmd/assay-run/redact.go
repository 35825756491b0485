package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// envRedactionKey names the file of the key that tags secrets.
const envRedactionKey = "ASSAY_REDACTION_KEY_FILE"

// maxSecretFile bounds a file of --secret-file, in bytes.
const maxSecretFile = 4 << 20

// redactFlags are the flags that say what is secret.
type redactFlags struct {
	env, files []string
	key        string
	disabled   bool
}

func (f *redactFlags) register(fs *pflag.FlagSet) {
	fs.Var((*texts)(&f.env), "secret-env",
		"also redact the value of the environment variable `NAME` (a glob); may be repeated")
	fs.Var((*texts)(&f.files), "secret-file", "also redact the secret in `FILE`; may be repeated")
	fs.StringVar(&f.key, "redaction-key", "",
		"tag redacted values with the key in `FILE`, or with a new key if FILE is \"ephemeral\" "+
			"(default the host's key)")
	fs.BoolVar(&f.disabled, "unsafe-disable-redaction", false, "record secrets unredacted, and mark the bundle")
}

// runRedactor makes a redactor that knows the secrets of a run, or nil if redaction is disabled.
func runRedactor(say *console.Messages, f *redactFlags, spec *specfile.Spec) (*redact.Redactor, error) {
	if f.disabled {
		say.Warning("redaction is disabled: the bundle may contain secrets, so keep it secret")
		return nil, nil
	}
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	r.Keep(spec.RunID)
	if err := addFiles(say, r, f.files); err != nil {
		return nil, err
	}
	tellShort(say, runner.Secrets(spec, r, append(f.env, redact.DefaultEnv...)))
	return r, nil
}

// addFiles adds the secrets in files to r.
func addFiles(say *console.Messages, r *redact.Redactor, files []string) error {
	for _, file := range files {
		value, err := readSecret(file)
		if err != nil {
			return console.WithHint(err, "name a file with one secret in it")
		}
		if !r.Add(redact.RuleGiven, value) {
			say.Warning("%s holds fewer than %d bytes: too short to redact, since it would match ordinary text", file,
				redact.MinSecret)
		}
	}
	return nil
}

// tellShort names the variables whose values are too short to redact.
func tellShort(say *console.Messages, names []string) {
	for _, name := range names {
		say.Warning("the value of $%s has fewer than %d bytes: too short to redact, since it would "+
			"match ordinary text", name, redact.MinSecret)
	}
}

// tellRemoved says what the last search before sealing took out.
func tellRemoved(say *console.Messages, removed *schema.Removal) {
	if removed == nil {
		return
	}
	say.Warning("the run recorded secrets before assay-run knew them: %s before the bundle was sealed; "+
		"observation-health.json counts them", removedWords(removed))
}

// removedWords puts a removal into words.
func removedWords(removed *schema.Removal) string {
	words := fmt.Sprintf("%s removed from %s", schema.Count(int(removed.RedactedCount), "secret", "secrets"),
		schema.Count(len(removed.ByField), "member", "members"))
	if len(removed.Dropped) > 0 {
		words += fmt.Sprintf(", and %s dropped, which could not be redacted (%s)",
			schema.Count(len(removed.Dropped), "member", "members"), strings.Join(removed.Dropped, ", "))
	}
	return words
}

// open makes a redactor that knows no secret yet.
func (f *redactFlags) open() (*redact.Redactor, error) {
	r, err := f.withKey()
	if err != nil {
		return nil, console.WithHint(err, "name a key with --redaction-key FILE, or use --redaction-key ephemeral")
	}
	return r, nil
}

func (f *redactFlags) withKey() (*redact.Redactor, error) {
	file := f.key
	if file == "" {
		file = os.Getenv(envRedactionKey)
	}
	switch file {
	case "ephemeral":
		return redact.NewEphemeral()
	case "":
		spools, err := archive.DefaultSpoolDir()
		if err != nil {
			return redact.NewUnkept(err)
		}
		return redact.NewOfHost(filepath.Join(filepath.Dir(spools), "redaction.key"))
	}
	return redact.NewFromFile(file)
}

func readSecret(file string) (string, error) {
	data, err := readAtMost(file, maxSecretFile)
	return string(bytes.TrimSpace(data)), err
}

// readAtMost reads a file, which may be a pipe. A larger one is an error.
func readAtMost(file string, most int) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, most)
	}
	return data, err
}

// redactRecord removes the secrets from run.json. The paths of the outputs stay: sealing needs
// them, and they do not get into the bundle.
func redactRecord(r *redact.Redactor, run schema.Run) (schema.Run, error) {
	if r == nil {
		return run, nil
	}
	output, result := run.Output, run.ResultOutput
	run.Output, run.ResultOutput = "", ""
	if len(run.CommandRaw) > 0 {
		if clean := r.Arguments(schema.RunPath, run.Command); &clean[0] != &run.Command[0] {
			run.CommandRaw = nil // the raw bytes would still have the secrets
		}
	}
	for i, raw := range run.CommandRaw {
		run.CommandRaw[i] = r.Text(schema.RunPath, raw)
	}
	doc, err := schema.Line(run)
	if err != nil {
		return run, err
	}
	clean := run
	if redacted := r.JSON(schema.RunPath, doc); !bytes.Equal(redacted, doc) {
		clean = schema.Run{}
		if err := json.Unmarshal(redacted, &clean); err != nil {
			return run, fmt.Errorf("redact %s: %w", schema.RunPath, err)
		}
	}
	clean.Output, clean.ResultOutput = output, result
	return clean, nil
}

// laterFlags are the flags that say what to remove from a sealed bundle.
type laterFlags struct {
	redact       redactFlags
	output       string
	force        bool
	rules, files []string
}

func redactCommand(a *app) *cobra.Command {
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
			return redactBundle(cmd.Context(), a, args[0], f)
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

func redactBundle(ctx context.Context, a *app, bundle string, f *laterFlags) error {
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
	if err := addFiles(a.say, r, f.redact.files); err != nil {
		return err
	}
	tellShort(a.say, r.AddEnv(os.Environ(), f.redact.env))
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
	_, err = fmt.Fprintf(a.stdout, "%s: %s; identity %s, from %s\n", schema.OneLine(f.output),
		removedWords(sealed.Removed), sealed.Identity, sealed.Removed.From)
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
