//go:build linux

package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/task"
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

func (a *app) newCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new TASK",
		Short: "Write the folder of a new task",
		Long: `new writes a folder in the format of Harbor: task.toml, instruction.md, environment/Dockerfile,
tests/test.sh and solution/solve.sh. The task is complete: its solution passes its tests.`,
		Example: "  assay-suite new tasks/fix-it && assay-suite check --tasks tasks/fix-it --oracle --nop",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, errors.New("name the folder, which must not exist"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := task.New(args[0]); err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			a.say.Info("wrote %s: see docs/harbor.md for the format", schema.OneLine(args[0]))
			return nil
		},
	}
}

// judgeCommand runs a task's tests again.
func (a *app) judgeCommand() *cobra.Command {
	dir, lenient := "", false
	cmd := &cobra.Command{
		Use:   "judge container.tar --tasks DIR",
		Short: "Run a task's tests again on what an agent changed in its container",
		Long: `judge starts a container of the task's image, applies the changes in container.tar to it, and
runs the tests. Each attempt at a task in a folder leaves container.tar in its run's workspace, and
so in its bundle. The file holds at most 48 MiB of contents. If it lacks something, the run's stderr
says so.

Exit status: 0 each reward is at least 1; 1 one is less; 2 there is no reward; 3 the task is refused.`,
		Example: "  tar -xOf run.tar.gz workspace/changes.patch | git apply\n" +
			"  assay-suite judge container.tar --tasks tasks/fix-it",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dir == "" {
				return usage(cmd, errors.New("give one container.tar, and its task with --tasks"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := task.Read(dir, lenient, os.LookupEnv)
			if err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			code, err := suite.JudgeAgain(cmd.Context(), a.stdout, t, args[0])
			switch {
			case err != nil:
				return console.ExitError{Code: suite.ExitUndecided, Err: err}
			case code == trial.ExitUndecided:
				return console.ExitError{Code: suite.ExitUndecided}
			case code != 0:
				return console.ExitError{Code: suite.ExitFailed}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "tasks", "", "read the task in the folder `DIR`")
	cmd.Flags().BoolVar(&lenient, "lenient", false, "ignore unknown keys in task.toml")
	return cmd
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
