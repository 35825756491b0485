package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/schema/agents"
)

func agentsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List the agents that --agent sets up, or print a recipe",
		Long: `agents lists the agents that "assay-run --agent NAME" sets up, and the version of each
that was tested. An agent without a recipe works in the private home too: see
--mode workspace-write.

A recipe says what is written to the private home of the agent before it starts, and
which variables, arguments and hosts it gets. To set up another agent, or to change a
recipe, edit a copy of what "agents show" prints, and name it with --agent-file.`,
		Example: `  assay-run agents
  assay-run agents show codex > mine.yaml
  assay-run --agent-file mine.yaml -- codex exec "fix the test"`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			w := newTable(a.stdout)
			for _, name := range agents.Names() {
				r, err := agents.ByName(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\t%s %s\n", name, r.About, r.Package.NPM, r.Package.Tested)
			}
			return w.Flush()
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:       "show NAME",
		Short:     "Print what --agent NAME sets",
		Args:      one("an agent", "codex"),
		ValidArgs: agents.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := agents.ByName(args[0])
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(r.Text)
			return err
		},
	})
	return cmd
}
