//go:build man && linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/manual"
)

func init() {
	packaging = append(packaging, func() *cobra.Command { return manual.Command(console.Version(release), "") })
}
