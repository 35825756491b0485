package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Explain a policy, print a profile, learn the smallest policy of runs",
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
		Args:  one("a profile", "codex"),

		ValidArgs: sandbox.Builtins(),
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
	var unverified bool
	cmd := &cobra.Command{
		Use:   "learn [flags] BUNDLE...",
		Short: "Print the smallest policy that allows what runs did",
		Long: `learn reads what runs wrote, connected to and were denied, and prints the smallest
policy in mode workspace-write that allows all of it. learn needs the kernel layer, and
cannot learn what the layer missed. Read the policy before you use it: it allows what
the run did, even if the run should not have done it.

"-" reads a bundle from standard input.`,
		Example: "  assay-run -o run.tar.gz -- ./agent.sh\n  assay-run policy learn run.tar.gz > policy.yaml",
		Args:    someBundles,
		RunE: func(cmd *cobra.Command, args []string) error {
			l := sandbox.NewLearner()
			err := a.eachBundle(cmd.Context(), args, reading{unverified: unverified}, func(b *view.Bundle) error {
				return learn(cmd.Context(), l, b)
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.stdout, l.Text())
			return err
		},
	}
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also learn from bundles that do not verify")
	return cmd
}

func learn(ctx context.Context, l *sandbox.Learner, b *view.Bundle) error {
	if b.Docs.Health.KernelLayer == schema.Absent {
		return console.WithHint(fmt.Errorf("%s has no kernel layer to learn from", b.Name),
			"record the run on a host where assay-run doctor reports kernel observation")
	}
	l.Run(b.Docs.Run.Workdir)
	for _, layer := range []struct {
		path string
		line func([]byte) error
	}{{schema.KernelPath, l.Kernel}, {schema.PolicyPath, l.Policy}} {
		for line, err := range b.Lines(ctx, layer.path) {
			if err == nil {
				err = layer.line(line)
			}
			if err != nil {
				return console.WithHint(err, "run assay-run verify %s", b.Name)
			}
		}
	}
	return nil
}
