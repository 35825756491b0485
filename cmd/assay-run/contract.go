package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
)

func contractCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "contract validate|render|derive|check",
		Short: "Write, read and evaluate outcome contracts",
		Long: `An outcome contract is a list of shell commands that must pass once the work is
done. Files are JSON or YAML:

  description: the parser handles empty input
  checks:
    - name: tests_pass
      command: go test ./...
    - name: says_empty
      command: printf '' | ./parser
      expect_exit_zero: false      # default true
      output_contains: empty input # default: any output passes
      timeout_secs: 10             # default 120
  protected: ["**/*_test.go"]      # restored before checking`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(contractValidateCommand(a), contractRenderCommand(a))
	cmd.AddCommand(contractRunning(a)...)
	return cmd
}

func contractValidateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "List everything that makes a contract prove nothing",
		Long: "validate lists all problems of a contract. Exit status: 0 no problems; 1 problems\nfound; 125 the " +
			"file cannot be read as a contract.",
		Args: one("a contract file", "done.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, digest, err := contractfile.Load(args[0])
			if err != nil {
				return err
			}
			if problems := c.Validate(); len(problems) > 0 {
				for _, p := range problems {
					fmt.Fprintf(a.stdout, "%s: %s\n", schema.OneLine(args[0]), p)
				}
				return console.ExitError{Code: 1}
			}
			_, err = fmt.Fprintf(a.stdout, "%s: valid, %s, %s\n", schema.OneLine(args[0]),
				schema.Count(len(c.Checks), "check", "checks"), digest)
			return err
		},
	}
}

func contractRenderCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "render FILE",
		Short: "Print a contract for people and prompts",
		Args:  one("a contract file", "done.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, _, err := contractfile.Load(args[0])
			if err != nil {
				return err
			}
			return contractfile.Render(a.stdout, c)
		},
	}
}
