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
)

// groundFiles are patterns of what is in the suite's directory.
var groundFiles = []string{"attempts/**", "inputs/**", "ledger.ndjson", "results.json", "lock", "work/nats/**",
	"work/local/bundle-*"}

// ofWorker reports whether a worker added a pattern, as reserve does, to those of a try in a workspace.
func ofWorker(pattern, workspace string) bool {
	slot := filepath.Dir(workspace)
	dirs := []string{slot, filepath.Join(filepath.Dir(slot), sentDirName)}
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
