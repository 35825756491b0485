package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

func doctorCommand(a *app) *cobra.Command {
	var asJSON, profile, model bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this host can contain, limit and observe, and how to fix the rest",
		Long: `doctor tries everything a run needs. For each thing that is missing it says why, and
how to fix it. It changes nothing. Exit status: 0 a run would work, if only in part;
1 a run would not work.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if profile {
				_, err := a.stdout.Write(runner.SeccompProfile())
				return err
			}
			if model {
				return console.Page(a.stdout, nil).Write(a.stdout, writeModel)
			}
			dir, err := archive.DefaultSpoolDir()
			if err != nil {
				dir = ""
			}
			d := runner.Diagnose(dir)
			if asJSON {
				err = a.printDocument(d)
			} else {
				err = console.Page(a.stdout, states).Write(a.stdout, func(w io.Writer) error {
					return writeDiagnosis(w, d)
				})
			}
			if err == nil && !d.Works {
				err = console.ExitError{Code: 1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().BoolVar(&profile, "seccomp-profile", false,
		"print a seccomp profile for Docker and Podman under which all features work")
	cmd.Flags().BoolVar(&model, "model", false,
		"print what is known of each system call: recorded, the caller's own affair, or open")
	return cmd
}

// states colours what doctor prints.
var states = view.Colours(`^(?:\S+ +\S+ +)?(ok|a run works here)(?:$| )`, `^\S+ +\S+ +(degraded)(?:$| )`,
	`^(?:\S+ +\S+ +)?(missing|a run would not work here)(?:$| )`)

// writeModel prints the table that the health's open follows.
func writeModel(out io.Writer) error {
	w := newTable(out)
	fmt.Fprintln(w, "CALL\tOPERATION\tX86-64\tIA32\tARM64\tACCOUNT\tIF IT FAILED\tOPENS\tWHY")
	for _, r := range kernel.Model() {
		failed := "nothing"
		if r.FailedToo {
			failed = "the same"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Call, r.Operation, r.X86, r.IA32, r.ARM64, r.Account,
			failed, strings.Join(r.Claims, " "), r.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\na call that is not listed opens programs, files, hosts and privilege\n%s\n\n",
		kernel.ModelDigest())
	fmt.Fprintln(w, "OPENS A CLAIM\tOPERATION\tWHICH HONEST PROGRAM DOES IT")
	for _, o := range kernel.HonestOpens() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", o.Call, cmp.Or(o.Operation, "any"), o.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\neverything else that opens a claim is unusual\n\n")
	fmt.Fprintln(w, "BLIND SPOT\tHIDES\tWHAT IS NOT SEEN")
	for _, d := range layer.Coverage(kernel.TierEBPF) {
		for _, s := range d.KnownBlindSpots {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.ID, cmp.Or(strings.Join(s.Hides, " "), "nothing"), s.Name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "DIMENSION\tMETHOD\tWHAT IS SEEN")
	for _, d := range layer.Coverage(kernel.TierEBPF) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Dimension, d.Method, strings.Join(d.Observes, "; "))
	}
	return w.Flush()
}

func writeDiagnosis(out io.Writer, d runner.Diagnosis) error {
	fmt.Fprintf(out, "This is %s.\n\n", d.Place)
	w := newTable(out)
	for _, f := range d.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Subject, f.Name, f.State, schema.OneLine(f.Detail))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, fix := range d.Fixes {
		fmt.Fprintf(out, "\n%s (%s)\n  concerns: %s\n", schema.OneLine(fix.Message), strings.Join(fix.Codes, ", "),
			strings.Join(fix.Findings, ", "))
		if fix.Remedy != "" {
			fmt.Fprintf(out, "  fix: %s\n", schema.OneLine(fix.Remedy))
		}
	}
	verdict := "a run works here"
	if !d.Works {
		verdict = "a run would not work here"
	}
	_, err := fmt.Fprintf(out, "\n%s\n", verdict)
	return err
}
