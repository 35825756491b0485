//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/pages"
	"github.com/assay-run/assay-run/schema"
)

// readResults reads and validates results.json in a suite's directory.
func readResults(dir string) (*schema.SuiteResults, error) {
	name := filepath.Join(dir, "results.json")
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, console.WithHint(err, "assay-suite run writes it to the suite's directory")
	}
	if err != nil {
		return nil, err
	}
	r := &schema.SuiteResults{}
	if err := schema.Validate(schema.SuiteResultsV0, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func (a *app) reportCommand() *cobra.Command {
	var format, output string
	var bundles bool
	cmd := &cobra.Command{
		Use:   "report DIR [flags]",
		Short: "Write the results of a suite as a page, or for other tools",
		Long: `report formats results.json in a suite's directory. The format html writes index.html to the directory.
With --bundles it also writes a page about each bundle, report.html, beside it, which index.html links.
The others go to stdout: markdown, and junit and ctrf with a case for each attempt. The details of a case
list its suspicions; an attempt that passed with one is an error there.`,
		Example: "  assay-suite report out --bundles\n  assay-suite report out --format junit -o junit.xml",
		Args:    exactly(1, "report takes the directory of a suite"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			r, err := readResults(dir)
			if err != nil {
				return console.ExitError{Code: suite.ExitBadInput, Err: err}
			}
			if bundles && format != "html" {
				return usage(cmd, fmt.Errorf("--bundles is for --format html, not %s", format))
			}
			version := console.Version(release)
			var write func(w io.Writer) error
			switch format {
			case "html":
				if bundles {
					if err := a.bundleReports(cmd.Context(), dir, r); err != nil {
						return console.ExitError{Code: suite.ExitUndecided, Err: err}
					}
				}
				if output == "" {
					output = filepath.Join(dir, "index.html")
				}
				write = func(w io.Writer) error {
					return pages.HTML(w, r, "assay-suite "+version, func(bundle string) string {
						return linkTo(filepath.Dir(output), filepath.Join(dir, pages.ReportOf(bundle)))
					})
				}
			case "markdown":
				write = func(w io.Writer) error { return pages.Markdown(w, r) }
			case "junit":
				write = func(w io.Writer) error { return render.WriteJUnit(w, cases(r)) }
			case "ctrf":
				write = func(w io.Writer) error { return render.WriteCTRF(w, version, cases(r)) }
			default:
				return usage(cmd, fmt.Errorf("--format is %q, want html, markdown, junit or ctrf", format))
			}
			if output == "" || output == "-" {
				return write(a.stdout)
			}
			if err := console.WriteFile(output, write); err != nil {
				return err
			}
			a.say.Info("wrote %s", output)
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "html", "write `FORMAT`: html, markdown, junit, ctrf")
	cmd.Flags().BoolVar(&bundles, "bundles", false, "also write a page about each bundle; it takes about 20 ms each")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to `FILE`; \"-\" is stdout")
	return cmd
}

// exactly returns the check that a command has n arguments. Its error is otherwise.
func exactly(n int, otherwise string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(cmd, errors.New(otherwise))
		}
		return nil
	}
}

// linkTo is a relative link from a page in a directory to a file; empty if the file does not exist.
func linkTo(dir, file string) string {
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	from, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	to, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return ""
	}
	return (&url.URL{Path: filepath.ToSlash(rel)}).String()
}

// bundleReports writes the page about each bundle, unless one exists that is newer than the bundle. It warns about a
// bundle that cannot be read.
func (a *app) bundleReports(ctx context.Context, dir string, r *schema.SuiteResults) error {
	for i := range r.Attempts {
		bundle := r.Attempts[i].Bundle
		if bundle == "" || !filepath.IsLocal(bundle) {
			continue
		}
		page := filepath.Join(dir, pages.ReportOf(bundle))
		if current(page, filepath.Join(dir, bundle)) {
			continue
		}
		if err := bundleReport(ctx, filepath.Join(dir, bundle), page); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a.say.Warning("%s has no report: %v", r.Attempts[i].ID, err)
		}
	}
	return nil
}

// current reports whether a page exists and is not older than its bundle.
func current(page, bundle string) bool {
	made, err := os.Stat(page)
	if err != nil {
		return false
	}
	of, err := os.Stat(bundle)
	return err == nil && !made.ModTime().Before(of.ModTime())
}

func bundleReport(ctx context.Context, bundle, page string) error {
	set, err := view.Open(ctx, []string{bundle}, view.Options{})
	if err != nil {
		return err
	}
	defer set.Close()
	return console.WriteFile(page, func(w io.Writer) error {
		return render.WriteHTML(ctx, w, "assay-suite "+console.Version(release), set.Bundles, nil)
	})
}

// cases are the attempts as test cases for JUnit and CTRF, in one test suite for each task and agent.
func cases(r *schema.SuiteResults) []render.Suite {
	var all []render.Suite
	at := map[string]int{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		name := a.Task + "/" + a.Agent
		if _, ok := at[name]; !ok {
			at[name] = len(all)
			all = append(all, render.Suite{Name: name, RunID: name})
		}
		s := &all[at[name]]
		c := render.Case{Rule: a.ID, State: render.Skipped, Message: "it has no verdict yet"}
		if a.Verdict != nil {
			c.Message = a.Reason
			switch *a.Verdict {
			case schema.SuitePassed:
				c.State = render.Passed
				switch { // never plain green: an agent must not gain by them
				case len(a.Suspicions) > 0:
					c.State, c.Message = render.Unknown, "passed with "+schema.Count(len(a.Suspicions), "suspicion",
						"suspicions")
				case len(a.Unusual) > 0:
					c.State, c.Message = render.Unknown, "passed, but a rule could not be decided: "+a.Unusual[0]
				}
			case schema.SuiteFailed:
				c.State = render.Failed
			default:
				c.State, c.Message = render.Unknown, *a.Verdict+": "+a.Reason
			}
			if n := len(a.Tries); n > 0 && a.Tries[n-1].Seconds != nil {
				c.Milliseconds = int64(1000 * *a.Tries[n-1].Seconds)
				s.Seconds += *a.Tries[n-1].Seconds
			}
		}
		if a.Bundle != "" {
			c.Details = append(c.Details, render.Detail{Text: "bundle " + a.Bundle})
		}
		for _, f := range a.Suspicions {
			d := render.Detail{Text: "suspicion " + f.Rule + ": " + f.Text, Layer: f.Layer}
			if len(f.Events) > 0 {
				d.Line = f.Events[0] + 1
			}
			c.Details = append(c.Details, d)
		}
		s.Cases = append(s.Cases, c)
	}
	return all
}
