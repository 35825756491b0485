//go:build linux

package suite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/internal/strict"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// ground is the directory that agents have no business in, but for their own workspace: the suite's, or on another
// machine the worker's.
func (w *Worker) ground() string {
	if w.Local {
		return filepath.Dir(filepath.Dir(w.Dir)) // see OwnDir
	}
	return w.Dir
}

// groundFiles are patterns of what is in the suite's directory.
var groundFiles = []string{"attempts/**", "inputs/**", "ledger.ndjson", "results.json", "lock", "work/nats/**",
	"work/local/bundle-*"}

// reserve adds to a try's evaluation file what an agent has no business with: to read or write its own evidence and
// contract, and files of other attempts. i is its slot.
func (w *Worker) reserve(e *schema.EvaluationDefinition, i int) {
	slot := literal(w.slotDir(i))
	for _, name := range []string{"evaluation.yaml", "spec.json", "spool/**", "file-*"} {
		e.Hidden = append(e.Hidden, slot+"/"+name)
		e.Protected = append(e.Protected, slot+"/"+name)
	}
	e.Protected = append(e.Protected, slot+"/run.tar.gz*", literal(w.sentDir())+"/**")
	for _, secret := range w.Secrets {
		e.Hidden = append(e.Hidden, literal(secret))
	}
	for other := range w.Jobs {
		if other != i {
			e.Others = append(e.Others, literal(w.slotDir(other))+"/**")
		}
	}
	if w.Local {
		for _, name := range groundFiles {
			e.Others = append(e.Others, literal(w.ground())+"/"+name)
		}
	}
}

// ofWorker reports whether a worker added a pattern, as reserve does, to those of a try in a workspace.
func ofWorker(pattern, workspace string) bool {
	slot := filepath.Dir(workspace)
	dirs := []string{slot, (&Worker{Dir: filepath.Dir(slot)}).sentDir()}
	if at := filepath.Dir(slot); filepath.Base(at) == "local" {
		dirs = append(dirs, filepath.Dir(filepath.Dir(at)))
	}
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(pattern, literal(dir)+"/") })
}

// literal is a pattern that matches a path and nothing else.
func literal(path string) string {
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(`*?[]{}\\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// confined is the path of a policy that is as the one at path, and also hides files and directories, but for those in
// open, and keeps others from being written. A policy without a sandbox does neither, and stays.
func confined(path string, hide, keep, open []string) (string, error) {
	switch f, err := policy.Load(path); {
	case err != nil:
		return "", err
	case f.Sandbox.Mode == "" || f.Sandbox.Mode == sandbox.Observe:
		return path, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	doc, files := map[string]jsontext.Value{}, map[string]jsontext.Value{}
	if err := strict.Decode(data, strict.FormatOf(path, data), &doc); err != nil {
		return "", err
	}
	if had := doc["filesystem"]; had.Kind() == '{' {
		if err := json.Unmarshal(had, &files); err != nil {
			return "", err
		}
	}
	for key, more := range map[string][]string{"denyRead": hide, "denyWrite": keep, "allowRead": open} {
		var list []string
		if had := files[key]; had.Kind() == '[' {
			if err := json.Unmarshal(had, &list); err != nil {
				return "", err
			}
		}
		text, err := json.Marshal(append(list, more...))
		if err != nil {
			return "", err
		}
		files[key] = text
	}
	if doc["filesystem"], err = json.Marshal(files, json.Deterministic(true)); err != nil {
		return "", err
	}
	if data, err = json.Marshal(doc, json.Deterministic(true)); err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(path), "confined.json")
	return path, os.WriteFile(path, data, 0o600)
}

// evaluation is the task's evaluation file with what the suite knows besides: its own files are hidden, and they and
// the workspace that others get copies of are protected.
func (f *File) evaluation(t *Task, a *Agent) schema.EvaluationDefinition {
	e := t.evaluation()
	e.Hidden, e.Protected = slices.Clone(e.Hidden), slices.Clone(e.Protected)
	for _, path := range f.private(t) {
		e.Hidden, e.Protected = append(e.Hidden, literal(path)), append(e.Protected, literal(path))
	}
	if t.Workspace != "" {
		if real, err := filepath.EvalSymlinks(f.path(t.Workspace)); err == nil {
			e.Protected = append(e.Protected, literal(real), literal(real)+"/**")
		}
	}
	if _, known := agents.Of(a.Shim); known {
		e.Agent = a.Shim
	}
	return e
}

// private are the files of the suite that would tell an agent how it is judged.
func (f *File) private(t *Task) (paths []string) {
	contract, _ := f.ContractFile(t)
	rules := ""
	if t.Rules != "" {
		rules = f.path(t.Rules)
	}
	for _, path := range []string{f.file, contract, rules} {
		if real, err := filepath.EvalSymlinks(path); path != "" && err == nil {
			paths = append(paths, real)
		}
	}
	return paths
}

// RealPath is the absolute path of a file, without links, which need not exist: the kernel's record and a sandbox's
// rules have no links.
func RealPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for dir, rest := path, ""; ; {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return "", err
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}
