//go:build linux

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
)

// attemptCommand is the command of a run that attempts a task in a folder, and of the check that judges it.
func (a *app) attemptCommand() *cobra.Command {
	return &cobra.Command{Use: "attempt PLAN agent|judge", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := trial.Load(args[0])
			if err != nil {
				return err
			}
			code := 0
			if ctx := context.Background(); args[1] == "judge" {
				code = p.Judge(ctx, a.stdout)
			} else {
				code = p.Agent(ctx, a.stdout, a.stderr)
			}
			if code != 0 {
				return console.ExitError{Code: code}
			}
			return nil
		}}
}

func (a *app) pruneCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that were built for tasks in folders",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(cmd, errors.New("prune takes no arguments"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := trial.Prune(cmd.Context())
			if err == nil {
				a.say.Info("removed %s", schema.Count(n, "image", "images"))
			}
			return err
		},
	}
}
