//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
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
	listen       string
	nats         natsFlags
	jobs         int
	lease        time.Duration
	quiet        bool
}

// carriers checks how a suite's tries are carried.
func (f *runFlags) carriers() error {
	switch {
	case f.nats.url != "" && f.listen != "":
		return errors.New("--listen and --nats exclude each other: give one")
	case f.jobs < 0:
		return fmt.Errorf("--jobs %d: give 0 or more", f.jobs)
	case f.jobs == 0 && f.nats.url == "" && f.listen == "":
		return errors.New("--jobs 0 leaves all attempts to other workers: give --listen or --nats, by which they come")
	case f.nats.url == "" && f.listen == "" && f.nats != natsFlags{}:
		return errors.New("--creds, --token-file and --tls-* need --nats or --listen")
	case f.listen != "" && (f.nats.creds != "" || f.nats.ca != ""):
		return errors.New("--creds and --tls-ca are for --nats; --listen takes --token-file, --tls-cert and --tls-key")
	}
	return nil
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
			}
			if err := f.carriers(); err != nil {
				return usage(cmd, err)
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
	fs.IntVar(&f.jobs, "jobs", max(1, runtime.NumCPU()/2), "run `N` attempts at once in this process; 0 leaves all "+
		"to workers")
	fs.DurationVar(&f.lease, "lease", suite.DefaultLease, "give up a try of which nothing is heard for `TIME`")
	fs.StringVar(&f.program, "assay-run", "",
		"run attempts with the assay-run at `PATH` (default: beside this program, or in PATH)")
	fs.StringVar(&f.listen, "listen", "", "let workers come in at `HOST:PORT`; beyond this machine that takes "+
		"--tls-cert, --tls-key and --token-file")
	f.nats.bind(fs)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if all goes well")
	return cmd
}

func (a *app) run(file string, f *runFlags) error {
	s, err := suite.Load(file, checkRules)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	program, err := findProgram(f.program)
	if err != nil && f.jobs > 0 {
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
	a.interrupt(stopped, killed)

	results, err := a.coordinate(ctx, kill, killed, s, dir, program, f)
	switch {
	case errors.Is(err, ledger.ErrLocked), errors.Is(err, ledger.ErrDamaged), errors.Is(err, ledger.ErrNewer),
		errors.Is(err, suite.ErrDirectory), errors.Is(err, carrier.ErrInput):
		return nil, console.ExitError{Code: suite.ExitBadInput, Err: err}
	case err != nil:
		return nil, console.ExitError{Code: suite.ExitUndecided, Err: err}
	}
	return results, nil
}

var errInterrupted = errors.New("interrupted")

// interrupt watches for signals from now on: the first ends stopped, and the second killed.
func (a *app) interrupt(stopped, killed context.CancelCauseFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		a.say.Info("interrupted: what runs goes on to its end, and nothing else begins; again to cancel it")
		stopped(errInterrupted)
		<-signals
		killed(errInterrupted)
	}()
}

// coordinate runs the suite, with a worker of this process and those of others. killed ends kill.
func (a *app) coordinate(ctx, kill context.Context, killed context.CancelCauseFunc, s *suite.File, dir, program string,
	f *runFlags) (_ *schema.SuiteResults, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	own := carrier.Name(host) + "-local"
	work := filepath.Join(dir, "work")
	told, asked := make(chan carrier.Message, 64), make(chan suite.Question, 64)
	fresh := make(chan struct{}, 1)
	config := suite.Config{File: s, Dir: dir, Slots: f.jobs, Lease: f.lease, Told: told, Asked: asked, Fresh: fresh,
		Examine: examine, Version: console.Version(release), Own: own, OwnDir: filepath.Join(work, "local"),
		OnNote: func(note string) { a.say.Info("%s", note) }}
	if program != "" {
		config.Judge = judgeBy(program)
	}
	shown := newProgress(a.say, a.stderr)
	defer shown.done()
	var c *suite.Coordinator
	config.OnVerdict = func(at suite.Attempt, v *schema.SuiteTry) { shown.verdict(at, v, c.Counts) }
	if c, err = suite.Open(config); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if f.listen != "" {
		boundMemory()
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	nc, end, err := a.carry(ctx, f, filepath.Join(work, "nats"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	hub, err := carrier.NewHub(ctx, nc, c.ID(), carrier.Options{OnFile: f.nats.url != "", Lost: a.once()})
	if err != nil {
		return nil, err
	}
	if f.nats.url != "" {
		a.say.Info("NATS at %s keeps each message %s", f.nats.url, schema.Count(hub.Replicas(), "time", "times"))
	}
	over := make(chan struct{})
	unlisten, err := hub.Listen(carrier.Listening{
		Told: func(m carrier.Message) {
			select {
			case told <- m:
			case <-over:
			}
		},
		Asked: func(q carrier.Question) any { return ask(q, asked, over) },
		Fresh: func() {
			select {
			case fresh <- struct{}{}:
			default: // it will be seen
			}
		},
	})
	if err != nil {
		return nil, err
	}
	stop := sync.OnceFunc(func() { close(over); unlisten() })
	defer stop()
	working, rest := context.WithCancel(context.Background())
	defer rest()
	ended := make(chan error, 1)
	if f.jobs > 0 {
		line, err := carrier.NewLine(nc, own, a.once())
		if err != nil {
			return nil, err
		}
		secrets, err := f.nats.secrets()
		if err != nil {
			return nil, err
		}
		worker := &suite.Worker{Name: own, Life: rand.Text(), Suite: c.ID(), Version: config.Version,
			Dir: config.OwnDir, Program: program, Jobs: f.jobs, Line: line, Local: true, Secrets: secrets,
			OnNote: config.OnNote}
		go func() {
			err := worker.Run(working, kill)
			if err != nil {
				killed(err) // nobody else would run what is open
			}
			ended <- err
		}()
	} else {
		ended <- nil
	}
	if err = c.Run(ctx, kill, hub); err != nil {
		killed(err) // no verdict could be kept
	}
	rest()
	err = errors.Join(err, <-ended)
	stop()
	if err == nil {
		bye, cancel := context.WithTimeout(context.Background(), removeTime)
		defer cancel()
		if err := hub.Remove(bye); err != nil {
			a.say.Warning("the suite's streams are left in NATS: %v", err)
		}
	}
	results := c.Results()
	return results, errors.Join(err, writeResults(dir, results))
}

// serverMemory is for a server in this process besides what the suite takes. The server caches what it sends for ten
// seconds, and lets go of it when the collector runs.
const serverMemory = 128 << 20

// boundMemory makes the collector run in time, unless the user set a bound.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		debug.SetMemoryLimit(int64(m.HeapAlloc) + serverMemory)
	}
}

// removeTime bounds how long streams may take to be removed.
const removeTime = 10 * time.Second

// ask brings a question to the coordinator, and back what it answers; nil for nothing.
func ask(q carrier.Question, asked chan<- suite.Question, over <-chan struct{}) any {
	answer := make(chan *suite.Welcome, 1)
	select {
	case asked <- suite.Question{Question: q, Answer: answer}:
	case <-over:
		return nil
	}
	select {
	case w := <-answer:
		if w != nil {
			return w
		}
	case <-over:
	}
	return nil
}

// carry connects to NATS servers, or to one in this process whose scratch directory is dir.
func (a *app) carry(ctx context.Context, f *runFlags, dir string) (_ *nats.Conn, end func() error, err error) {
	if f.nats.url != "" || f.listen != "" {
		if err := hide(); err != nil {
			return nil, nil, err
		}
	}
	if f.nats.url != "" {
		ctx, stop := context.WithTimeout(ctx, serversTime)
		defer stop()
		nc, err := a.connect(ctx, f.nats.access(a), "", "")
		if err != nil {
			return nil, nil, err
		}
		return nc, func() error { nc.Close(); return nil }, nil
	}
	open, err := f.nats.opening(f.listen)
	if err != nil {
		return nil, nil, err
	}
	server, err := carrier.Serve(dir, open)
	if err != nil {
		return nil, nil, err
	}
	if f.listen != "" {
		a.say.Info("workers come in at %s", server.Address())
		if open.Token == "" {
			a.say.Warning("every process of this machine, also an agent, can take work at %s: give --token-file",
				server.Address())
		}
	}
	nc, err := server.Connect()
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return nc, func() error { nc.Close(); return server.Close() }, nil
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
