//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [--json] DIR",
		Short: "Print how far a suite has come, also while it runs",
		Args:  exactly(1, "status takes the directory of a suite"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, _, err := suite.Read(args[0])
			if err != nil {
				return notASuite(err)
			}
			if asJSON {
				return schema.PrintDocument(a.stdout, s)
			}
			var b strings.Builder
			running := "not running"
			if s.Running != "" {
				running = "running in " + s.Running
			}
			line(&b, "%s: %d of %s decided; %s", s.Suite, s.Attempts-s.Pending,
				schema.Count(s.Attempts, "attempt", "attempts"), running)
			line(&b, "%d passed, %d failed, %d inconclusive, %d infrastructure, %d suspicious", s.Passed,
				s.Failed, s.Inconclusive, s.Infrastructure, s.Suspicious)
			for _, t := range s.Open {
				worker := "not begun"
				if t.Worker != "" {
					worker = "on " + t.Worker
				}
				line(&b, "open: %s, try %d, since %s, %s", t.ID, t.Try, t.Opened, worker)
			}
			_, err = io.WriteString(a.stdout, b.String())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the status as JSON")
	return cmd
}

// notASuite adds a hint to an error about a directory that cannot be read as a suite's.
func notASuite(err error) error {
	hint := "name the directory that was given to assay-suite run --dir"
	switch {
	case errors.Is(err, ledger.ErrDamaged):
		hint = "restore the ledger from a copy, or run the suite in another directory"
	case errors.Is(err, ledger.ErrNewer):
		hint = "use the assay-suite that wrote it, or a newer one"
	}
	return console.ExitError{Code: suite.ExitBadInput, Err: console.WithHint(err, "%s", hint)}
}

func (a *app) showCommand() *cobra.Command {
	var dir, program string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show TASK/AGENT/ATTEMPT [--dir DIR]",
		Short: "Show an attempt's tries, and a command that repeats it by hand",
		Long: `show prints the verdict of an attempt, all its tries with their bundles, and commands for the shell
that repeat it in a new directory, with the prompt, contract and policy of its last try.`,
		Example: "  assay-suite show off-by-one/claude/2 --dir out",
		Args:    exactly(1, "show takes the id of an attempt, such as off-by-one/claude/2"),
		RunE: func(_ *cobra.Command, args []string) error {
			_, all, err := suite.Read(dir)
			if err != nil {
				return notASuite(err)
			}
			h, err := suite.Find(all, strings.TrimSuffix(args[0], "/"))
			if err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: console.WithHint(err,
					"an id is TASK/AGENT/ATTEMPT; results.json lists all of them")}
			}
			if program, err = findProgram(program); err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			again, err := h.RepeatCommands(dir, program)
			if err != nil {
				a.say.Warning("cannot print a command that repeats %s: %v", h, err)
			}
			if asJSON {
				return schema.PrintDocument(a.stdout, shown{h.String(), h.Verdict(), h.Tries, again})
			}
			return show(a.stdout, dir, h, again)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&dir, "dir", ".", "read the suite in `DIR`")
	fs.BoolVar(&asJSON, "json", false, "print it as JSON")
	fs.StringVar(&program, "assay-run", "", "repeat it with the assay-run at `PATH` (default: beside this program, or "+
		"in PATH)")
	return cmd
}

// shown is the output of show --json.
type shown struct {
	ID      string            `json:"id"`
	Verdict *schema.SuiteTry  `json:"verdict"` // the last one that counts; null while there is none
	Tries   []schema.SuiteTry `json:"tries"`
	Again   string            `json:"again"` // commands for sh; empty if it cannot be repeated
}

func show(w io.Writer, dir string, h *suite.History, again string) error {
	var b strings.Builder
	verdict := "no verdict yet"
	if v := h.Verdict(); v != nil {
		verdict = described(v)
	}
	line(&b, "%s: %s", h, verdict)
	for i := range h.Tries {
		t := &h.Tries[i]
		b.WriteByte('\n')
		line(&b, "try %d: %s", t.Try, described(t))
		if t.Judged != 0 {
			line(&b, "  judged again from the bundle of try %d", t.Judged)
		}
		if t.Seconds != nil {
			line(&b, "  took %v", time.Duration(*t.Seconds*float64(time.Second)).Round(time.Millisecond))
		}
		if t.Tokens != nil {
			line(&b, "  used %d tokens", *t.Tokens)
		}
		if t.Host != nil {
			line(&b, "  ran on %s, %s, %s", t.Host.Worker, t.Host.Kernel, t.Host.AssayRun)
		}
		if t.KernelState != "" {
			line(&b, "  kernel layer %s", t.KernelState)
		}
		for _, f := range t.Suspicions {
			line(&b, "  suspicion %s: %s", f.Rule, f.Text)
		}
		if len(t.Unknown) > 0 {
			line(&b, "  rules that could not be decided: %s", strings.Join(t.Unknown, ", "))
		}
		if t.Bundle != "" {
			line(&b, "  bundle %s", filepath.Join(dir, t.Bundle))
			for _, said := range failedChecks(filepath.Join(dir, t.Bundle)) {
				line(&b, "  %s", said)
			}
		}
	}
	if again != "" {
		b.WriteString("\nTo repeat it by hand, in an empty directory:\n\n")
		for l := range strings.SplitSeq(again, "\n") {
			line(&b, "%s", l)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// failedChecks returns the last lines of output of each check of the bundle's contract that failed.
func failedChecks(bundle string) (lines []string) {
	const maxLines = 12 // of each check
	set, err := view.Open(context.Background(), []string{bundle}, view.Options{})
	if err != nil {
		return []string{"the bundle cannot be read: " + err.Error()}
	}
	defer set.Close()
	c := set.Bundles[0].Docs.Contract
	if c == nil {
		return nil
	}
	for _, r := range c.Results {
		if r.Passed {
			continue
		}
		lines = append(lines, "the check "+r.Name+" wrote:")
		said := strings.Split(strings.TrimRight(r.OutputTail, "\n"), "\n")
		for _, l := range said[max(0, len(said)-maxLines):] {
			lines = append(lines, "  "+l)
		}
	}
	return lines
}

// described is a try's verdict with its class and reason.
func described(t *schema.SuiteTry) string {
	text := t.Verdict
	if t.Class != "" {
		text += " (" + t.Class + ")"
	}
	if t.Reason != "" {
		text += ": " + t.Reason
	}
	return text
}

// line writes a line without control characters: parts of it come from agents and workers.
func line(b *strings.Builder, format string, args ...any) {
	b.WriteString(schema.OneLine(fmt.Sprintf(format, args...)) + "\n")
}
