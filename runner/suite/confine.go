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

	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// suiteFiles are patterns for the files in the suite's directory that no agent has a reason to touch.
var suiteFiles = []string{"attempts/**", "inputs/**", "ledger.ndjson", "results.json", "lock", "work/nats/**",
	"work/workspaces/**", "work/local/bundle-*"}

// ofWorker reports whether a worker added the pattern, as addOffLimits does, to the evaluation of a try whose workspace
// was at the given path.
func ofWorker(pattern, workspace string) bool {
	slot := filepath.Dir(workspace)
	dirs := []string{slot, filepath.Join(filepath.Dir(slot), sentDirName)}
	if at := filepath.Dir(slot); filepath.Base(at) == "local" {
		dirs = append(dirs, filepath.Dir(filepath.Dir(at)))
	}
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(pattern, literal(dir)+"/") })
}

// literal is the pattern that matches only the given path.
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

// confine writes a copy of the policy at path that also hides the paths in hide, except for those in show, and makes
// those in protect read-only. It returns the path of the copy. A policy without a sandbox can do neither: it returns
// path. closed means that the policy without a mode has a sandbox, because of a closed book.
func confine(path string, closed bool, hide, protect, show []string) (string, error) {
	switch f, err := policyfile.Load(path); {
	case err != nil:
		return "", err
	case f.Sandbox.Mode == "" && !closed || f.Sandbox.Mode == sandboxfile.Observe:
		return path, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	doc, files := map[string]jsontext.Value{}, map[string]jsontext.Value{}
	if err := config.Decode(data, config.FormatOf(path, data), &doc); err != nil {
		return "", err
	}
	if had := doc["filesystem"]; had.Kind() == '{' {
		if err := json.Unmarshal(had, &files); err != nil {
			return "", err
		}
	}
	for key, more := range map[string][]string{"denyRead": hide, "denyWrite": protect, "allowRead": show} {
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

// RealPath is the absolute path of a file without symbolic links, as the kernel's record and a sandbox's rules need it.
// The file need not exist.
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
