package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

func observeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "observe start|stop|status",
		Short: "Keep the host's observer between runs",
		Long: `All runs of one build share one observer: eBPF programs that the first run
loads and the last one removes. observe start loads them before any run and keeps them,
so that each run starts faster. observe stop removes them, at once or when the last run
that uses them ends. To keep them for a limited time, use a run's --keep-observer.
Needs root.`,
		Example: "  assay-run observe start      load and keep the observer\n  assay-run observe status     show " +
			"which observers are in place",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	status := &cobra.Command{
		Use: "status", Short: "Show which observers are in place", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := kernel.HostObservers()
			if err != nil {
				return observeHint(err)
			}
			if asJSON {
				return a.printDocument(list)
			}
			return listObservers(a, list)
		},
	}
	status.Flags().BoolVar(&asJSON, "json", false, "list as JSON")
	cmd.AddCommand(&cobra.Command{
		Use: "start", Short: "Load the observer and keep it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := runner.CheckDescriptors(true); err != nil {
				return descriptorHint(err)
			}
			if err := kernel.StartObserver(); err != nil {
				return observeHint(err)
			}
			a.say.Info("the observer is in place and stays until assay-run observe stop")
			return nil
		},
	}, &cobra.Command{
		Use: "stop", Short: "Remove the observer", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			removed, used, err := kernel.StopObserver()
			if err != nil {
				return observeHint(err)
			}
			switch {
			case used > 0:
				a.say.Info("the observer is still in use; the last run that uses it removes it")
			case removed > 0:
				a.say.Info("the observer is removed")
			default:
				a.say.Info("no observer is in place")
			}
			return nil
		},
	}, status)
	return cmd
}

// observeHint adds a hint. Runs do not need a shared observer: without one, each loads
// its own programs.
func observeHint(err error) error {
	var p *kernel.PlaceError
	var u *kernel.Unavailable
	switch {
	case errors.As(err, &p) && p.Remedy != "":
		return console.WithHint(err, "%s; runs work without a shared observer, but start more slowly", p.Remedy)
	case errors.As(err, &u) && len(u.Reasons) > 0 && u.Reasons[0].Remedy != "":
		return console.WithHint(err, "%s", u.Reasons[0].Remedy)
	}
	return console.WithHint(err, "run as root on a host with eBPF; assay-run doctor shows what is missing")
}

func listObservers(a *app, list []kernel.HostObserver) error {
	if len(list) == 0 {
		a.say.Info("no observer is in place")
		return nil
	}
	w := newTable(a.stdout)
	fmt.Fprintln(w, "OBSERVER\tBUILD\tRUNS\tKEPT")
	for _, o := range list {
		build, runs, kept := "another", "unknown", "no"
		if o.Own {
			build, runs = "this", fmt.Sprint(o.Sessions)
		}
		if o.Kept {
			kept = "yes"
		}
		if o.Problem != "" {
			runs = "broken: " + o.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", schema.OneLine(o.Path), build, schema.OneLine(runs), kept)
	}
	return w.Flush()
}
