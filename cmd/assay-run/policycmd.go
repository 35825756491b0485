package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Explain a policy, print a profile, learn the smallest policy of a run",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.policyCheck(), a.policyShow(), a.policyLearn())
	return cmd
}

func (a *app) policyShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show PROFILE",
		Short: "Print a built-in profile: " + strings.Join(sandbox.Builtins(), ", "),
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := sandbox.Builtin(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, p.Text)
			return err
		},
	}
}

func (a *app) policyLearn() *cobra.Command {
	return &cobra.Command{
		Use:   "learn [flags] BUNDLE",
		Short: "Print the smallest policy that allows what a run did",
		Long: `learn reads what a run wrote, connected to and was denied, and prints the
smallest policy in mode workspace-write under which nothing of that is denied.
What it could not see it cannot learn: it needs the kernel layer. Read the policy
before you use it: what a run did is not what it should have done.`,
		Example: "  assay-run -o run.tar.gz -- ./agent.sh\n  assay-run policy learn run.tar.gz > policy.yaml",
		Args:    oneBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			bundle, err := archive.Open(args[0])
			if err != nil {
				return console.ExitError{Code: exitStatus[archive.Unreadable], Err: err}
			}
			docs, err := bundle.Documents(cmd.Context(), schema.SurfacePath)
			if err != nil {
				return console.WithHint(err, "run assay-run verify %s", args[0])
			}
			if docs.Health.KernelLayer == schema.Absent {
				return console.WithHint(fmt.Errorf("%s has no kernel layer to learn from", args[0]), "record the run on a host where assay-run doctor reports kernel observation")
			}
			l := sandbox.NewLearner(docs.Run.Workdir)
			for line, err := range bundle.Lines(cmd.Context(), schema.KernelPath) {
				if err == nil {
					err = l.Kernel(line)
				}
				if err != nil {
					return console.WithHint(err, "run assay-run verify %s", args[0])
				}
			}
			for line, err := range bundle.Lines(cmd.Context(), schema.PolicyPath) {
				if err == nil {
					err = l.Policy(line)
				}
				if err != nil {
					return console.WithHint(err, "run assay-run verify %s", args[0])
				}
			}
			_, err = fmt.Fprint(a.stdout, l.Text())
			return err
		},
	}
}
