package main

import "github.com/assay-run/assay-run/runner/policy"

// loadPolicy reads a policy file, if one is named, and tells what is doubtful
// about it.
func (a *app) loadPolicy(path string) (*policy.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := policy.Load(path)
	if err != nil {
		return nil, err
	}
	for _, w := range file.Warnings {
		a.say.Warning("%s: %s", path, w)
	}
	return file, nil
}
