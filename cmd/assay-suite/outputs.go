//go:build linux

package main

import (
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
)

// writeResults writes results.json.
func writeResults(dir string, r *schema.SuiteResults) error {
	doc, err := schema.Document(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "results.json")
	if err := os.WriteFile(path+".tmp", doc, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
