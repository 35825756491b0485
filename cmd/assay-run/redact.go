package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// envRedactionKey names the file of the key that tags secrets.
const envRedactionKey = "ASSAY_REDACTION_KEY_FILE"

// maxSecretFile bounds a file of --secret-file, in bytes.
const maxSecretFile = 4 << 20

// redactFlags say what is secret, as they were given.
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

// redactor knows the secrets of a run; nil when redaction is disabled.
func (a *app) redactor(f *redactFlags, spec *runner.Spec) (*redact.Redactor, error) {
	if f.disabled {
		a.say.Warning("redaction is disabled: the bundle may contain secrets, so keep it secret")
		return nil, nil
	}
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	r.Keep(spec.RunID)
	if err := a.addFiles(r, f.files); err != nil {
		return nil, err
	}
	a.tellShort(spec.Secrets(r, append(f.env, redact.DefaultEnv...)))
	return r, nil
}

// addFiles makes the secrets in files known.
func (a *app) addFiles(r *redact.Redactor, files []string) error {
	for _, file := range files {
		value, err := readSecret(file)
		if err != nil {
			return console.WithHint(err, "name a file with one secret in it")
		}
		if !r.Add(redact.RuleGiven, value) {
			a.say.Warning("%s holds fewer than %d bytes: too short to redact, since it would match ordinary text", file,
				redact.MinSecret)
		}
	}
	return nil
}

func (a *app) tellShort(names []string) {
	for _, name := range names {
		a.say.Warning("the value of $%s has fewer than %d bytes: too short to redact, since it would "+
			"match ordinary text", name, redact.MinSecret)
	}
}

// tellRemoved says what the last search before sealing took out.
func (a *app) tellRemoved(removed *schema.Removal) {
	if removed == nil {
		return
	}
	a.say.Warning("the run recorded secrets before assay-run knew them: %s before the bundle was sealed; "+
		"observation-health.json counts them", removedWords(removed))
}

// removedWords says what a removal took out.
func removedWords(removed *schema.Removal) string {
	words := fmt.Sprintf("%s removed from %s", count(int(removed.RedactedCount), "secret"),
		count(len(removed.ByField), "member"))
	if len(removed.Dropped) > 0 {
		words += fmt.Sprintf(", and %s dropped, which could not be redacted (%s)",
			count(len(removed.Dropped), "member"), strings.Join(removed.Dropped, ", "))
	}
	return words
}

// open makes a redactor that knows nothing yet.
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

// redactRecord takes the secrets out of run.json. The outputs' paths stay as they
// are: they are needed to seal, and not part of the bundle.
func redactRecord(r *redact.Redactor, run schema.Run) (schema.Run, error) {
	if r == nil {
		return run, nil
	}
	output, result := run.Output, run.ResultOutput
	run.Output, run.ResultOutput = "", ""
	if len(run.CommandRaw) > 0 {
		if clean := r.Arguments(schema.RunPath, run.Command); &clean[0] != &run.Command[0] {
			run.CommandRaw = nil // the raw bytes would hold what was taken out
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
