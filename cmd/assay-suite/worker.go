//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
)

type workerFlags struct {
	nats               natsFlags
	dir, name, program string
	jobs               int
	quiet              bool
}

func (a *app) workerCommand() *cobra.Command {
	f := &workerFlags{}
	cmd := &cobra.Command{
		Use:   "worker --nats URL --dir DIR [flags]",
		Short: "Run attempts of suites that other machines coordinate",
		Long: `worker runs attempts of a suite that assay-suite run coordinates, on this machine or another one,
with --listen or --nats. It waits for a suite, works for it until it is over, and then waits for the
next one. ^C or SIGTERM lets running attempts finish; a second one cancels them.

Exit status: 0 it was stopped; 2 it failed; 3 a flag is wrong, or the suite runs another version.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return usage(cmd, errors.New("worker takes no arguments"))
			case f.nats.url == "":
				return usage(cmd, errors.New("--nats is missing: it names the server that the suite uses"))
			case f.dir == "":
				return usage(cmd, errors.New("--dir is missing: it names a directory for running attempts"))
			case f.jobs < 1:
				return usage(cmd, fmt.Errorf("--jobs %d: give 1 or more", f.jobs))
			case f.name != "" && carrier.Name(f.name) != f.name:
				return usage(cmd, fmt.Errorf("--name %s: give letters, digits, _ and -", f.name))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			a.say.Quiet = f.quiet
			return a.worker(f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.nats.bind(fs)
	fs.StringVar(&f.dir, "dir", "", "keep running attempts in `DIR`, which no other worker may use")
	fs.StringVar(&f.name, "name", "", "name this worker `NAME`, also as the user of --token-file (default this "+
		"host's name)")
	fs.IntVar(&f.jobs, "jobs", max(1, runtime.NumCPU()/2), "run `N` attempts at once")
	fs.StringVar(&f.program, "assay-run", "",
		"run attempts with the assay-run at `PATH` (default: beside this program, or in PATH)")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing unless something goes wrong")
	return cmd
}

func (a *app) worker(f *workerFlags) error {
	bad := func(err error) error { return console.ExitError{Code: suite.ExitBadInput, Err: err} }
	program, err := findProgram(f.program)
	if err != nil {
		return bad(err)
	}
	dir, err := suite.RealPath(f.dir)
	if err != nil {
		return err
	}
	if f.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		f.name = carrier.Name(host)
	}
	if err := hideMemory(); err != nil {
		return err
	}
	kill, killed := context.WithCancelCause(context.Background())
	defer killed(nil)
	ctx, stopped := context.WithCancelCause(kill)
	defer stopped(nil)
	a.interrupt(stopped, killed)

	w := &suite.Worker{Name: f.name, Instance: rand.Text(), Version: console.Version(release), Dir: dir,
		Program: program, Jobs: f.jobs, OnNote: func(note string) { a.say.Info("%s", note) }}
	access := f.nats.access(a)
	if w.Secrets, err = f.nats.secrets(); err != nil {
		return err
	}
	nc, err := a.connect(ctx, access, w.Name, w.Instance)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case errors.Is(err, carrier.ErrInput):
		return bad(err)
	case err != nil:
		return console.ExitError{Code: suite.ExitUndecided, Err: err}
	}
	defer nc.Close()
	client, err := carrier.NewClient(nc, f.name, a.warnOnce(natsFailed))
	if err != nil {
		return err
	}
	w.Client = client
	switch err := w.Run(ctx, kill); {
	case errors.Is(err, suite.ErrRefused), errors.Is(err, suite.ErrBusy):
		return bad(err)
	case err != nil:
		return console.ExitError{Code: suite.ExitUndecided, Err: err}
	}
	return nil
}

const (
	// connectPause is the time between two attempts to connect.
	connectPause = time.Second
	// serversTime limits how long a coordinator waits for NATS servers to start.
	serversTime = 20 * time.Second
)

// connect connects to NATS as the worker with the given name, or as the coordinator if name is empty. While no server
// answers it tries again, until ctx ends.
func (a *app) connect(ctx context.Context, access *carrier.Access, name, instance string) (*nats.Conn, error) {
	for said := false; ; said = true {
		nc, err := access.Connect(name, instance)
		switch {
		case err == nil:
			return nc, nil
		case errors.Is(err, nats.ErrAuthorization):
			return nil, console.WithHint(err,
				"the server rejects this user: check --token-file, --creds and a worker's --name")
		case errors.Is(err, carrier.ErrInput), ctx.Err() != nil:
			return nil, err
		case !said:
			a.say.Info("cannot connect to NATS at %s (%v); trying again every %v", access.URL, errors.Unwrap(err),
				connectPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(connectPause):
		}
	}
}
