//go:build linux

package suite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/internal/strict"
	"github.com/assay-run/assay-run/runner/workspace"
)

// Names of the files in a directory of inputs.
const (
	inputsWork       = "work.json" // a Work without what differs between attempts
	inputsSpec       = "spec.json" // a run's spec, whose files are beside it
	inputsPrompt     = "prompt"
	inputsEvaluation = "evaluation.yaml"
)

// writeInputs makes the directory, whole or not at all.
func writeInputs(dir string, w *Work) error {
	part := dir + ".part"
	if err := errors.Join(workspace.Remove(part), os.MkdirAll(part, 0o700)); err != nil {
		return err
	}
	put := func(name string, data []byte) error { return os.WriteFile(filepath.Join(part, name), data, 0o600) }
	s := *w.Spec
	var errs []error
	for _, c := range []struct {
		Copy
		kind string
		to   *string
	}{{w.Contract, "contract", &s.Contract}, {w.Policy, "policy", &s.Policy},
		{w.Prices, "prices", &s.Model.Prices}} {
		if c.Name != "" {
			*c.to = c.kind + filepath.Ext(c.Name)
			errs = append(errs, put(*c.to, c.Data))
		}
	}
	evaluation, err := EvaluationFile(w.Evaluation)
	errs = append(errs, err, put(inputsEvaluation, evaluation), put(inputsPrompt, []byte(w.Prompt)))
	s.Evaluation = inputsEvaluation
	spec, err := s.MarshalJSON()
	spec = bytes.Replace(spec, []byte(`"run_id":"",`), nil, 1) // each run has its own
	errs = append(errs, err, put(inputsSpec, spec))
	work, err := json.Marshal(w, json.Deterministic(true))
	errs = append(errs, err, put(inputsWork, work))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// Again is a command of sh that repeats an attempt by hand, in a new directory "again" with a copy of the task's
// workspace. dir is the suite's directory, and program assay-run.
func (h *History) Again(dir, program string) (string, error) {
	if h.Inputs == "" || !filepath.IsLocal(h.Inputs) {
		return "", errors.New("what it was given is not kept")
	}
	inputs, err := filepath.Abs(filepath.Join(dir, h.Inputs))
	if err != nil {
		return "", err
	}
	data, err := strict.ReadFile(filepath.Join(inputs, inputsWork), maxFile)
	if err != nil {
		return "", err
	}
	w := &Work{Spec: &runner.Spec{}}
	if err := json.Unmarshal(data, w); err != nil {
		return "", err
	}
	from := "mkdir again"
	if info, err := os.Stat(w.Workspace); w.Workspace != "" && err == nil && info.IsDir() {
		from = "cp -a " + quoted(w.Workspace) + " again"
	} else if w.Workspace != "" {
		from += " && tar -xf " + quoted(w.Workspace) + " -C again"
	}
	env := []string{"env -i"}
	for _, kv := range environ(w.Env) {
		name, _, _ := strings.Cut(kv, "=")
		env = append(env, name+`="$`+name+`"`)
	}
	slices.Sort(env[1:])
	run := []string{quoted(program), "run", "--spec", quoted(filepath.Join(inputs, inputsSpec)),
		"--env", EnvAttempt + "=" + strconv.Itoa(h.Attempt.Attempt),
		"--env", quoted(EnvPromptFile + "=" + filepath.Join(inputs, inputsPrompt)), "--workdir", "again",
		"-o", "again.tar.gz"}
	return from + " && \\\n" + strings.Join(env, " ") + " \\\n" + strings.Join(run, " "), nil
}

// quoted is a word of sh.
func quoted(s string) string {
	if programName.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
