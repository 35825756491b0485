//go:build man

package main

import (
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/manual"
)

func init() {
	packaging["man"] = func(*app) *cobra.Command { return manual.Command(version(), manualOnly) }
}

// manualOnly is what the manual page says beyond --help.
const manualOnly = `

Output: with capture (the default) the command's output passes through a pipe.
If assay-run cannot write it, as on a full disk under "> file", the command does
not get the error itself, which a pipe cannot carry: its next write fails with
EPIPE. With --no-capture the command writes to the file itself, and gets the
file's own errors.`
