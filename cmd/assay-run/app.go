package main

import (
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// app is one invocation: its arguments and streams.
type app struct {
	args                  []string
	stdin, stdout, stderr *os.File
	say                   *console.Messages
	helpAll               bool // help shows all flags
}

// release is set by the linker for released builds.
var release = ""

func version() string { return console.Version(release) }

// printDocument writes a JSON document to stdout.
func (a *app) printDocument(v any) error { return schema.PrintDocument(a.stdout, v) }

// newTable returns a writer of lines whose columns end with tabs.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0) }

// subcommand is a command below the root. It is made only if the arguments may call it.
type subcommand struct {
	name    string
	command func(*app) *cobra.Command
}
