package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/assay-run/assay-run/schema"
)

// release is set by the linker for released builds.
var release = ""

// version is the release, or the module version or revision of a build from
// source.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages to DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := &doc.GenManHeader{Title: "ASSAY-RUN", Section: "1", Source: "assay-run " + version()}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write manual pages to %s: %w", filepath.Clean(args[0]), err)
			}
			return nil
		},
	}
}

// printDocument writes a JSON document to stdout.
func (a *app) printDocument(v any) error {
	data, err := schema.Document(v)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(data)
	return err
}
