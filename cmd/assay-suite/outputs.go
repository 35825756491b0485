//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
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

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check SUITE.yaml",
		Short: "Check a suite file and all that it names, as run does first",
		Args:  exactly(1, "check takes a suite file"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := suite.Load(args[0], checkRules)
			if err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s, %s, %s\n", s.Name, schema.Count(len(s.Tasks), "task", "tasks"),
				schema.Count(len(s.Agents), "agent", "agents"), schema.Count(len(s.Attempted()), "attempt", "attempts"))
			return err
		},
	}
}
