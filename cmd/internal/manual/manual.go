//go:build man

package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Command is the hidden command that writes the pages of a program, section 1. only is what the program's own page says
// beyond its help.
func Command(version, only string) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages to DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.Long += only
			literal(root)
			header := &doc.GenManHeader{Title: strings.ToUpper(root.Name()), Section: "1",
				Source: root.Name() + " " + version}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
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
