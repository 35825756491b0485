package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// exitNone is the exit code of a query that found nothing, as grep's.
const exitNone = 1

func queryCommand(a *app) *cobra.Command {
	var of string
	var table, count, unverified, types bool
	var limit uint64
	cmd := &cobra.Command{
		Use:   "query [flags] EXPR BUNDLE...",
		Short: "Find events, processes, calls, turns or runs in bundles",
		Long: `query prints the events, processes, calls, turns or runs for which an expression is
true, in one bundle or in many. The expression is CEL (cel.dev) over the variables
that --types lists; query checks it before it reads any bundle. Besides CEL's own
functions there is TEXT.glob("/etc/**").

A directory as BUNDLE stands for all bundles in it. There, --of runs answers from an index
(DIR/.index.sqlite): it verifies each bundle once, and again when its file has changed.

Events and turns are printed exactly as in the bundle, everything else as one JSON
object per line.

Exit status: 0 something was found; 1 nothing was found; 2 an error occurred; 4 a bundle
cannot be read or does not verify.`,
		Example: `  assay-run query 'kind == "connect" && !host.endsWith(".example.com")' run.tar.gz
  assay-run query --table 'writes && !path.startsWith(run.workdir)' *.tar.gz
  assay-run query --of calls 'beyond || decision == "deny"' run.tar.gz
  assay-run query --of runs 'run.exit_code != 0 && health.kernel == "complete"' *.tar.gz
  assay-run query --of runs 'run.outcome == "timeout"' ~/.local/state/assay-run/store
  assay-run query --types --of processes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !types && len(args) < 2 {
				return a.usage(cmd, errors.New("query takes an expression and at least one bundle"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			subject := query.Subject(of)
			if !slices.Contains(query.Subjects, subject) {
				return a.usage(cmd, fmt.Errorf("--of is %q, want one of %v", of, query.Subjects))
			}
			if types {
				return printTypes(a, subject)
			}
			p, err := query.Compile(subject, args[0])
			if err != nil {
				return console.WithHint(err, "assay-run query --types --of %s lists the variables", of)
			}
			opt := view.Options{Unverified: unverified, Stdin: a.stdin}
			if subject != query.Runs { // the others have no variable of it
				opt.Without = []string{schema.SurfacePath}
			}
			names, err := inDirectories(args[1:])
			if err != nil {
				return console.ExitError{Code: view.ExitBundle, Err: err}
			}
			f := &finder{app: a, subject: subject, p: p, table: table, quiet: count, limit: limit, many: len(names) > 1}
			search := func(w io.Writer) error { return f.search(cmd.Context(), w, names, opt) }
			if table {
				err = console.Page(a.stdout, view.Rows).Write(a.stdout, search)
			} else {
				err = search(a.stdout)
			}
			if err != nil {
				return err
			}
			if f.found == 0 {
				return console.ExitError{Code: exitNone}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&of, "of", string(query.Events), "search these `THINGS`: events, processes, calls, turns, runs")
	fs.BoolVar(&table, "table", false, "print a table for people")
	fs.BoolVarP(&count, "count", "c", false, "print only the number of matches")
	fs.Uint64Var(&limit, "limit", 0, "stop after `N` matches (default no limit)")
	fs.BoolVar(&unverified, "unverified", false, "also search bundles that do not verify")
	fs.BoolVar(&types, "types", false, "list the variables and their types, and search nothing")
	console.Completes(cmd, map[string][]string{"of": {string(query.Events), string(query.Processes),
		string(query.Calls), string(query.Turns), string(query.Runs)}})
	return cmd
}

func printTypes(a *app, s query.Subject) error {
	var b strings.Builder
	for _, v := range query.Vars(s) {
		fmt.Fprintf(&b, "%-18s %-20s %s\n", v.Name, v.Type, v.Doc)
	}
	return console.Page(a.stdout, nil).Write(a.stdout, func(w io.Writer) error {
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// inDirectories is names, with the bundles of a directory in its place.
func inDirectories(names []string) (all []string, err error) {
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			all = append(all, name)
			continue
		}
		files, err := store.Files(name)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			all = append(all, filepath.Join(name, f.Name()))
		}
	}
	return all, nil
}

// finder prints what was found.
type finder struct {
	*app
	subject            query.Subject
	p                  *query.Program
	out                *bufio.Writer
	table, quiet, many bool
	limit, found       uint64
	err                error // of printing
}

// search prints what it finds in all bundles to w. It opens one after another.
func (f *finder) search(ctx context.Context, w io.Writer, names []string, opt view.Options) error {
	f.out = bufio.NewWriterSize(w, 64<<10)
	ctx, bar := f.progress(ctx, "searching", !f.quiet)
	defer bar.Done()
	opt.Stage = bar.Item
	known, err := newKnownRuns(ctx, f, names, bar.Item)
	if err == nil {
		err = f.each(ctx, names, opt, known)
		known.close()
	}
	bar.Done()
	if f.quiet && err == nil {
		fmt.Fprintln(f.out, f.found)
	}
	return errors.Join(err, f.out.Flush())
}

func (f *finder) each(ctx context.Context, names []string, opt view.Options, known *knownRuns) error {
	bundles, err := view.NewOpener(ctx, names, opt)
	if err != nil {
		return unopened(err)
	}
	defer bundles.Close()
	for i, name := range names {
		if f.err != nil || f.limit > 0 && f.found >= f.limit {
			break
		}
		if known, err := known.find(ctx, name); err != nil {
			return err
		} else if known {
			continue
		}
		b, err := bundles.Open(ctx, i)
		if err != nil {
			return unopened(err)
		}
		f.warn(b)
		if err := f.bundle(ctx, b); err != nil {
			return err
		}
	}
	return f.err
}

func (f *finder) bundle(ctx context.Context, b *view.Bundle) (err error) {
	p := f.p
	switch f.subject {
	case query.Events:
		var k schema.KernelEvent
		err = query.FindEvents(ctx, b, p, func(line []byte) bool {
			if !f.table {
				return f.line(line)
			}
			if f.err = schema.DecodeKernelEvent(line, &k); f.err != nil {
				return false
			}
			return f.row(b.Name, "%12.6f %8d  %-14s %-10s %s", float64(k.TNS)/1e9, k.PID, k.Kind, view.Outcome(&k),
				view.What(&k))
		})
	case query.Turns:
		err = query.FindTurns(ctx, b, p, func(t *schema.Turn, line []byte) bool {
			if !f.table {
				return f.line(line)
			}
			return f.row(b.Name, "%12.6f %-24s %-10s %s", float64(t.TStartNS)/1e9, schema.OneLine(t.Tool),
				schema.OneLine(t.RejectedBy), schema.OneLine(t.ToolCallID))
		})
	case query.Processes:
		err = query.FindProcesses(ctx, b, p, func(x *query.Process) bool {
			if !f.table {
				return f.document(x)
			}
			return f.row(b.Name, "%12.6f %8d %8d %s", float64(x.StartNS)/1e9, x.PID, x.PPID,
				view.Cut(view.QuoteArgs(x.Argv), 160))
		})
	case query.Calls:
		err = query.FindCalls(b, p, func(c *schema.Binding) bool {
			if !f.table {
				return f.document(struct {
					RunID string `json:"run_id"`
					*schema.Binding
				}{b.RunID(), c})
			}
			return f.row(b.Name, "%-28s %-20s %-8s %6d", schema.OneLine(c.ToolCallID), schema.OneLine(c.Tool),
				schema.OneLine(c.PolicyDecision), c.KernelEventCount)
		})
	case query.Runs:
		var ok bool
		if ok, err = query.FindRun(b, p); ok {
			f.run(runRow{b.RunID(), b.Name, b.Identity(), b.Docs.Result.Outcome, b.Docs.Result.ExitCode,
				b.Docs.Run.Command})
		}
	}
	return errors.Join(err, f.err)
}

// runRow is a bundle as query prints it.
type runRow struct {
	RunID    string   `json:"run_id"`
	Bundle   string   `json:"bundle"`
	Identity string   `json:"identity"`
	Outcome  string   `json:"outcome"`
	ExitCode *int     `json:"exit_code"`
	Command  []string `json:"command"`
}

// run prints a run.
func (f *finder) run(r runRow) {
	if !f.table {
		f.document(r)
		return
	}
	f.row(r.Bundle, "%s %-12s %s", schema.OneLine(r.RunID), schema.OneLine(r.Outcome),
		view.Cut(view.QuoteArgs(r.Command), 120))
}

// more counts something that was found and reports whether to go on after it.
func (f *finder) more() bool {
	f.found++
	return f.err == nil && (f.limit == 0 || f.found < f.limit)
}

func (f *finder) line(line []byte) bool {
	if !f.quiet {
		view.WriteLine(f.out, line)
		f.err = f.out.WriteByte('\n')
	}
	return f.more()
}

func (f *finder) document(v any) bool {
	line, err := schema.Line(v)
	if err != nil {
		f.err = err
		return false
	}
	return f.line(line[:len(line)-1])
}

// row prints a row of a table, with the bundle's name where there are several, and reports whether more rows
// are wanted.
func (f *finder) row(bundle, format string, args ...any) bool {
	if f.quiet {
		return f.more()
	}
	if f.many {
		fmt.Fprintf(f.out, "%-24s ", view.Cut(schema.OneLine(bundle), 24))
	}
	_, f.err = fmt.Fprintln(f.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	return f.more()
}
