//go:build man

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// The manual pages are written when the program is packaged: their generator
// would cost every run its initialization.
func init() { packaging["man"] = (*app).manCommand }

// manualOnly is what the manual page says beyond --help.
const manualOnly = `

Output: with capture (the default) the command's output passes through a pipe.
If assay-run cannot write it, as on a full disk under "> file", the command does
not get the error itself, which a pipe cannot carry: its next write fails with
EPIPE. With --no-capture the command writes to the file itself, and gets the
file's own errors.`

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
			cmd.Root().Long += manualOnly
			literal(cmd.Root())
			header := &doc.GenManHeader{Title: "ASSAY-RUN", Section: "1", Source: "assay-run " + version()}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write manual pages to %s: %w", filepath.Clean(args[0]), err)
			}
			return nil
		},
	}
}

// literal keeps "<run_id>" in the texts of a command and of those below it, which the
// generator would take for HTML. Examples are shown as they stand.
func literal(cmd *cobra.Command) {
	escape := func(s string) string { return strings.ReplaceAll(s, "<", `\<`) }
	cmd.Long, cmd.Short = escape(cmd.Long), escape(cmd.Short)
	seen := map[*pflag.Flag]bool{}
	for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if !seen[f] && !strings.Contains(f.Usage, `\<`) { // root and run share theirs
				f.Usage = escape(f.Usage)
			}
			seen[f] = true
		})
	}
	for _, sub := range cmd.Commands() {
		literal(sub)
	}
}
