//go:build linux

package suite

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/workspace"
)

// Names of the files in a directory of inputs.
const (
	inputsWork       = "work.json" // a tryWork without the fields that differ between attempts
	inputsSpec       = "spec.json" // the run's spec; the files that it names are beside it
	inputsPrompt     = "prompt"
	inputsEvaluation = "evaluation.yaml"
)

// writeInputs writes a directory with what w gives to an agent, completely or not at all.
func writeInputs(dir string, w *tryWork) error {
	part := dir + ".part"
	if err := errors.Join(workspace.Remove(part), os.MkdirAll(part, 0o700)); err != nil {
		return err
	}
	put := func(name string, data []byte) error { return os.WriteFile(filepath.Join(part, name), data, 0o600) }
	s := *w.Spec
	var errs []error
	for _, c := range []struct {
		fileCopy
		kind string
		to   *string
	}{{w.Contract, "contract", &s.Contract}, {w.Policy, "policy", &s.Policy},
		{w.Prices, "prices", &s.Model.Prices}} {
		if c.Name != "" {
			*c.to = c.kind + filepath.Ext(c.Name)
			errs = append(errs, put(*c.to, c.Data))
		}
	}
	evaluation, err := evaluationFile(w.Evaluation)
	errs = append(errs, err, put(inputsEvaluation, evaluation), put(inputsPrompt, []byte(w.Prompt)))
	s.Evaluation = inputsEvaluation
	spec, err := s.MarshalJSON()
	spec = bytes.Replace(spec, []byte(`"run_id":"",`), nil, 1) // assay-run chooses one each time
	errs = append(errs, err, put(inputsSpec, spec))
	work, err := json.Marshal(w, json.Deterministic(true))
	errs = append(errs, err, put(inputsWork, work))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// quoted is s as one word of sh.
func quoted(s string) string {
	if programName.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// inputs keeps what an agent is given at a task, so that a try can be repeated by hand even after an edit.
type inputs struct {
	file    *File
	dir     string // the suite's
	desc    *Description
	sources map[string]source
	kept    map[cell]string // directories
}

func newInputs(f *File, dir string, desc *Description, sources map[string]source) *inputs {
	return &inputs{file: f, dir: dir, desc: desc, sources: sources, kept: map[cell]string{}}
}

// keep saves what an agent is given at a task. It returns the directory, whose name is a digest of the contents. All
// attempts of an agent at a task share it.
func (in *inputs) keep(a Attempt) (string, error) {
	at := cell{a.Task, a.Agent}
	if dir, ok := in.kept[at]; ok {
		return dir, nil
	}
	from := in.sources[a.Task]
	from.digest = in.desc.Workspaces[a.Task] // that of a prepared copy is another one each time
	w, err := in.file.work(Attempt{Task: a.Task, Agent: a.Agent}, 0, "", from)
	if err != nil {
		return "", err
	}
	w.Spec.RunID = ""
	delete(w.Spec.Env, envAttempt)
	dir := filepath.Join("inputs", strings.TrimPrefix(digestOf(w), "sha256:")[:16])
	switch _, err := os.Stat(filepath.Join(in.dir, dir)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeInputs(filepath.Join(in.dir, dir), w); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	}
	in.kept[at] = dir
	return dir, nil
}
