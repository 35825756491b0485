//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/suite/pages"
	"github.com/assay-run/assay-run/schema"
)

// runFlags are the flags of a run.
type runFlags struct {
	dir, program string
	jobs         int
	lease        time.Duration
	quiet        bool
}

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run SUITE.yaml --dir DIR [flags]",
		Short: "Run a suite, or go on with one",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usage(cmd, errors.New("run takes one suite file"))
			case f.dir == "":
				return usage(cmd, errors.New("--dir is missing: it names the directory of the suite"))
			case f.jobs < 1:
				return usage(cmd, fmt.Errorf("--jobs %d: give 1 or more", f.jobs))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.say.Quiet = f.quiet
			return a.run(args[0], f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.dir, "dir", "", "keep the suite's ledger, bundles and results in `DIR`")
	fs.IntVar(&f.jobs, "jobs", max(1, runtime.NumCPU()/2), "run `N` attempts at once")
	fs.DurationVar(&f.lease, "lease", suite.DefaultLease, "give up a try of which nothing is heard for `TIME`")
	fs.StringVar(&f.program, "assay-run", "",
		"run attempts with the assay-run at `PATH` (default: beside this program, or in PATH)")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if all goes well")
	return cmd
}

func (a *app) run(file string, f *runFlags) error {
	s, err := suite.Load(file, checkRules)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	program, err := findProgram(f.program)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	dir, err := suite.RealPath(f.dir)
	if err != nil {
		return err
	}
	results, err := a.complete(s, dir, program, f)
	if err != nil {
		return err
	}
	a.tellResults(f.dir, results)
	if code := suite.ExitCode(results); code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// complete runs what is missing of the suite in a directory.
func (a *app) complete(s *suite.File, dir, program string, f *runFlags) (*schema.SuiteResults, error) {
	// The first signal lets what runs end, the second cancels it.
	kill, killed := context.WithCancelCause(context.Background())
	defer killed(nil)
	ctx, stopped := context.WithCancelCause(kill)
	defer stopped(nil)
	go a.interrupt(stopped, killed)

	results, err := a.coordinate(ctx, kill, killed, s, dir, program, f)
	switch {
	case errors.Is(err, ledger.ErrLocked), errors.Is(err, ledger.ErrDamaged), errors.Is(err, ledger.ErrNewer),
		errors.Is(err, suite.ErrDirectory):
		return nil, console.ExitError{Code: suite.ExitBadInput, Err: err}
	case err != nil:
		return nil, console.ExitError{Code: suite.ExitUndecided, Err: err}
	}
	return results, nil
}

var errInterrupted = errors.New("interrupted")

func (a *app) interrupt(stopped, killed context.CancelCauseFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	a.say.Info("interrupted: what runs goes on to its end, and nothing else begins; again to cancel it")
	stopped(errInterrupted)
	<-signals
	killed(errInterrupted)
}

// coordinate runs the suite with a worker of this process, over a carrier in this process. killed ends kill.
func (a *app) coordinate(ctx, kill context.Context, killed context.CancelCauseFunc, s *suite.File, dir, program string,
	f *runFlags) (_ *schema.SuiteResults, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	told, beats := make(chan carrier.Message, 64), make(chan string, 64)
	config := suite.Config{File: s, Dir: dir, Slots: f.jobs, Lease: f.lease, Told: told, Beats: beats, Examine: examine,
		Judge: judgeBy(program),
		Own:   host, OwnDir: filepath.Join(dir, "work", "local"),
		OnNote: func(note string) { a.say.Info("%s", note) }}
	shown := newProgress(a.say, a.stderr)
	defer shown.done()
	var c *suite.Coordinator
	config.OnVerdict = func(at suite.Attempt, v *schema.SuiteTry) { shown.verdict(at, v, c.Counts) }
	if c, err = suite.Open(config); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	server, err := carrier.Serve(filepath.Join(work, "nats"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	nc, err := server.Connect("coordinator")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	hub, err := carrier.NewHub(ctx, nc, dir, carrier.Options{})
	if err != nil {
		return nil, err
	}
	line, err := carrier.NewLine(ctx, nc, dir)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	stop, err := hub.Listen(nc, func(m carrier.Message) {
		select {
		case told <- m:
		case <-over:
		}
	}, func(token string) {
		select {
		case beats <- token:
		default: // the next one will do
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	defer close(over)
	worker := &suite.Worker{Name: host, Dir: filepath.Join(work, "local"), Program: program, Jobs: f.jobs,
		Lease: f.lease, Line: line, Local: true}
	working, rest := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := worker.Run(working, kill)
		if err != nil {
			killed(err) // nobody else would run what is open
		}
		ended <- err
	}()
	c.Hub = hub
	if err = c.Run(ctx, kill); err != nil {
		killed(err) // no verdict could be kept
	}
	rest()
	err = errors.Join(err, <-ended)
	results := c.Results()
	return results, errors.Join(err, writeResults(dir, results))
}

// findProgram is the path of assay-run.
func findProgram(given string) (string, error) {
	if given != "" {
		return exec.LookPath(given)
	}
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), "assay-run")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("assay-run")
	if err != nil {
		return "", console.WithHint(errors.New("there is no assay-run beside this program or in PATH"),
			"name it with --assay-run")
	}
	return path, nil
}

// tellResults tells of each agent, and where the rest is.
func (a *app) tellResults(dir string, r *schema.SuiteResults) {
	for i := range r.Agents {
		a.say.Info("%s", pages.Agent(r, &r.Agents[i]))
	}
	a.say.Info("results: %s; assay-suite report %s makes a page of them", filepath.Join(dir, "results.json"), dir)
}
