package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// reviewer is the program for reviewers of bundles. It is a separate program, so that its libraries
// do not make a run larger or slower to start.
const reviewer = "assay-review"

// reviewCommands are the subcommands that the reviewer has.
func reviewCommands() []subcommand {
	var all []subcommand
	for _, c := range []struct{ name, short string }{
		{"show", "Show what a run did, in order of time"},
		{"replay", "Play the recording of a run's terminal"},
		{"query", "Find events, processes, calls, turns or runs in bundles"},
		{"diff", "Show what differs between two runs"},
		{"gate", "Judge bundles by rules"},
		{"report", "Write one HTML page about bundles"},
		{"export", "Convert bundles to the format of another tool"},
		{"store", "List, fetch and prune stored bundles"},
	} {
		all = append(all, subcommand{c.name, func(a *app) *cobra.Command { return reviewCommand(a, c.name, c.short) }})
	}
	return all
}

func reviewCommand(a *app, name, short string) *cobra.Command {
	command := &cobra.Command{
		Use:                name,
		Short:              short,
		DisableFlagParsing: true,
		ValidArgsFunction:  reviewed,
		RunE: func(_ *cobra.Command, args []string) error {
			return becomeReviewer(append([]string{name}, args...))
		},
	}
	command.SetHelpFunc(func(*cobra.Command, []string) { // of "assay-run help NAME"
		a.say.Failure(becomeReviewer([]string{name, "--help"}))
	})
	return command
}

// becomeReviewer replaces this process with the reviewer. It returns only if that fails.
func becomeReviewer(args []string) error {
	path, err := findReviewer()
	if err != nil {
		return console.WithHint(fmt.Errorf("%q needs the program %s, which is not installed: %w", args[0], reviewer,
			err),
			"put it beside %s or into a directory of PATH; releases contain both, and \"make build\" builds both",
			executable())
	}
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, append([]string{reviewer}, args...), os.Environ()))
}

// findReviewer looks beside this program, then in PATH.
func findReviewer() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err == nil {
		beside := filepath.Join(filepath.Dir(exe), reviewer)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(reviewer)
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return path, err
}

// executable names this program in a hint.
func executable() string {
	exe, err := os.Executable()
	if err != nil {
		return "assay-run"
	}
	return exe
}

// reviewed asks the reviewer for what completion offers.
func reviewed(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	path, err := findReviewer()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	out, err := exec.Command(path,
		append(append([]string{cobra.ShellCompRequestCmd, cmd.Name()}, args...), typed)...).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last, found := strings.CutPrefix(lines[len(lines)-1], ":")
	directive, bad := strconv.Atoi(last)
	if err != nil || !found || bad != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}
