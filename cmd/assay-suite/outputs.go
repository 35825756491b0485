//go:build linux

package main

import (
	"io"
	"path/filepath"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// writeResults replaces results.json in dir, whole or not at all.
func writeResults(dir string, r *schema.SuiteResults) error {
	return archive.Replace(filepath.Join(dir, "results.json"), func(w io.Writer) error {
		return schema.WriteDocument(w, r)
	})
}
