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
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/suite/pages"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
	recipes "github.com/assay-run/assay-run/schema/agents"
)

// folderFlags name tasks that are folders, and their agents.
type folderFlags struct {
	tasks, setup, files string
	agents, env         []string
	attempts            int
	multipliers         []string
	judge               string
	lenient             bool
	oracle, nop         bool
}

func (f *folderFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.tasks, "tasks", "", "take the task in the folder `DIR`, or the tasks in its subfolders, "+
		"instead of a suite file")
	fs.BoolVar(&f.lenient, "lenient", false, "ignore unknown keys in a task.toml")
	fs.StringArrayVar(&f.multipliers, "timeout-multiplier", nil, "multiply the tasks' time limits by `[PHASE=]N`; "+
		"PHASE is agent, verifier or build (default all); may be repeated")
	fs.StringVar(&f.judge, "judge", "", "run the tests `WHERE`: fresh (in a new container with what the agent left), "+
		"place (in the agent's own container), both (default fresh)")
}

// check checks the flags of a command that takes a suite file or --tasks.
func (f *folderFlags) check(args []string) error {
	switch {
	case f.tasks == "" && len(args) != 1:
		return errors.New("give one suite file, or --tasks")
	case f.tasks != "" && len(args) != 0:
		return errors.New("--tasks and a suite file cannot be combined")
	case f.tasks == "" && (f.lenient || f.setup+f.files+f.judge != "" ||
		len(f.agents)+len(f.env)+len(f.multipliers)+f.attempts > 0):
		return errors.New("--lenient, --agent, --agent-setup, --agent-files, --agent-env, --attempts, --judge and " +
			"--timeout-multiplier need --tasks; a suite file has keys for them")
	case f.attempts < 0:
		return fmt.Errorf("--attempts %d: give 1 or more", f.attempts)
	}
	return nil
}

// read reads the suite file, or makes a suite of the tasks in --tasks.
func (f *folderFlags) read(args []string) (*suite.File, error) {
	if f.tasks == "" {
		return suite.Load(args[0], checkRules)
	}
	if f.files != "" {
		info, err := os.Stat(f.files)
		if err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--agent-files %s: it is not a directory", f.files)
		}
		if f.files, err = filepath.Abs(f.files); err != nil {
			return nil, err
		}
	}
	var agents []suite.Agent
	for i, given := range f.agents {
		name, command, named := strings.Cut(given, "=")
		if !named || !agentName.MatchString(name) {
			if name, command = "agent", given; i > 0 {
				name += strconv.Itoa(i + 1)
			}
		}
		agent := suite.Agent{Name: name, Command: command, Setup: f.setup, Files: f.files, Env: f.env}
		if slices.Contains(recipes.Names(), command) {
			agent.Command, agent.Recipe = "", command
			if !named {
				agent.Name = command
			}
		}
		agents = append(agents, agent)
	}
	if f.oracle {
		agents = append(agents, suite.Solver())
	}
	if f.nop || len(agents) == 0 {
		agents = append(agents, suite.Idler())
	}
	of := suite.Folders{Dir: f.tasks, Agents: agents, Attempts: f.attempts, Judge: f.judge, Lenient: f.lenient}
	for _, given := range f.multipliers {
		phase, text, named := strings.Cut(given, "=")
		if !named {
			phase, text = "", given
		}
		n, err := strconv.ParseFloat(text, 64)
		to := map[string][]*float64{"agent": {&of.Timeouts.Agent}, "verifier": {&of.Timeouts.Verifier},
			"build": {&of.Timeouts.Build}, "": {&of.Timeouts.Agent, &of.Timeouts.Verifier, &of.Timeouts.Build}}[phase]
		if err != nil || n <= 0 || to == nil {
			return nil, fmt.Errorf("--timeout-multiplier %q: give N, agent=N, verifier=N or build=N", given)
		}
		for _, multiplier := range to {
			*multiplier = n
		}
	}
	return suite.FromFolders(of)
}

// agentName matches what counts as a name before = in --agent.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

type runFlags struct {
	folderFlags
	dir, program string
	listen       string
	nats         natsFlags
	jobs         int
	lease        time.Duration
	quiet        bool
}

// checkCarrier checks the flags that say how workers are reached.
func (f *runFlags) checkCarrier() error {
	switch {
	case f.nats.url != "" && f.listen != "":
		return errors.New("--listen and --nats cannot be combined: give one of them")
	case f.jobs < 0:
		return fmt.Errorf("--jobs %d: give 0 or more", f.jobs)
	case f.jobs == 0 && f.nats.url == "" && f.listen == "":
		return errors.New("--jobs 0 leaves all attempts to workers: give --listen or --nats, so that they can connect")
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
		Use:   "run (SUITE.yaml | --tasks DIR --agent [NAME=]CMD) --dir DIR [flags]",
		Short: "Run a suite, or continue an interrupted one",
		Args: func(cmd *cobra.Command, args []string) error {
			switch err := f.folderFlags.check(args); {
			case err != nil:
				return usage(cmd, err)
			case f.tasks != "" && len(f.agents) == 0 && !f.oracle && !f.nop:
				return usage(cmd, errors.New("--tasks needs --agent, --oracle or --nop"))
			case f.tasks == "" && (f.oracle || f.nop):
				return usage(cmd, errors.New("--oracle and --nop need --tasks; for a suite file: assay-suite check"))
			case f.dir == "":
				return usage(cmd, errors.New("--dir is missing: it names the directory of the suite"))
			}
			if err := f.checkCarrier(); err != nil {
				return usage(cmd, err)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			a.say.Quiet = f.quiet
			return a.run(args, f)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.folderFlags.bind(fs)
	fs.StringArrayVar(&f.agents, "agent", nil, "let `[NAME=]CMD` attempt each task, by sh -c in its container, "+
		"or the agent of a recipe: "+strings.Join(recipes.Names(), ", ")+"; may be repeated")
	fs.StringVar(&f.setup, "agent-setup", "", "run `CMD` in the container first, as root")
	fs.StringVar(&f.files, "agent-files", "",
		"show the directory `DIR` in the container as "+trial.FilesAt+", read-only")
	fs.StringArrayVar(&f.env, "agent-env", nil,
		"pass the variable `NAME` of this process to the agents; may be repeated")
	fs.IntVar(&f.attempts, "attempts", 0, "let each agent attempt each task `N` times (default 1)")
	fs.BoolVar(&f.oracle, "oracle", false, "add an agent that runs each task's solution")
	fs.BoolVar(&f.nop, "nop", false, "add an agent that does nothing")
	fs.StringVar(&f.dir, "dir", "", "keep the suite's ledger, bundles and results in `DIR`")
	fs.IntVar(&f.jobs, "jobs", max(1, runtime.NumCPU()/2), "run `N` attempts at once in this process; 0 leaves "+
		"all to workers")
	fs.DurationVar(&f.lease, "lease", suite.DefaultLease, "give up a try when its worker has been silent for `TIME`")
	fs.StringVar(&f.program, "assay-run", "",
		"run attempts with the assay-run at `PATH` (default: beside this program, or in PATH)")
	fs.StringVar(&f.listen, "listen", "", "let workers connect at `HOST:PORT`; an address that other machines reach "+
		"needs --tls-cert, --tls-key and --token-file")
	f.nats.bind(fs)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing unless something goes wrong")
	return cmd
}

func (a *app) run(args []string, f *runFlags) error {
	s, err := f.folderFlags.read(args)
	if err != nil {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	for _, note := range s.Notes() {
		a.say.Info("%s", note)
	}
	program, err := findProgram(f.program)
	if err != nil && f.jobs > 0 {
		return console.ExitError{Code: suite.ExitBadInput, Err: err}
	}
	dir, err := suite.RealPath(f.dir)
	if err != nil {
		return err
	}
	if s.Folders() && (f.listen != "" || f.nats.url != "" || f.jobs == 0) {
		return console.ExitError{Code: suite.ExitBadInput,
			Err: errors.New("tasks in folders run on this machine alone: omit --listen and --nats")}
	}
	results, err := a.complete(s, dir, program, f)
	if err != nil {
		return err
	}
	a.printSummary(f.dir, results)
	if code := suite.ExitCode(results); code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}

// complete runs the attempts that the suite's directory has no verdict of.
func (a *app) complete(s *suite.File, dir, program string, f *runFlags) (*schema.SuiteResults, error) {
	// The first signal ends ctx: running attempts finish, and no other begins. The second ends kill: they are
	// cancelled.
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

// interrupt calls stopped at the first SIGINT or SIGTERM, and killed at the second.
func (a *app) interrupt(stopped, killed context.CancelCauseFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		a.say.Info("interrupted: running attempts finish, and no other begins; interrupt again to cancel them")
		stopped(errInterrupted)
		<-signals
		killed(errInterrupted)
	}()
}

// coordinate runs the suite, with a worker of this process unless --jobs is 0, and with those that connect. It calls
// killed, which ends kill, when its own worker or the coordinator fails.
func (a *app) coordinate(ctx, kill context.Context, killed context.CancelCauseFunc, s *suite.File, dir, program string,
	f *runFlags) (_ *schema.SuiteResults, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	own := carrier.Name(host) + "-local"
	work := filepath.Join(dir, "work")
	reports, questions := make(chan carrier.Message, 64), make(chan suite.Question, 64)
	workLost := make(chan struct{}, 1)
	config := suite.Config{File: s, Dir: dir, Slots: f.jobs, Lease: f.lease, Reports: reports, Questions: questions,
		WorkLost: workLost,
		Examine:  examine, Version: console.Version(release), LocalWorker: own, LocalDir: filepath.Join(work, "local"),
		OnNote: func(note string) { a.say.Info("%s", note) }}
	if program != "" {
		config.CheckContract = contractCheck(program)
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
		limitMemory()
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	nc, end, err := a.dial(ctx, f, filepath.Join(work, "nats"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	hub, err := carrier.NewHub(ctx, nc, c.ID(), carrier.Options{OnFile: f.nats.url != "",
		OnError: a.warnOnce(natsFailed)})
	if err != nil {
		return nil, err
	}
	if f.nats.url != "" {
		a.say.Info("NATS at %s keeps each message %s", f.nats.url, schema.Count(hub.Replicas(), "time", "times"))
	}
	over := make(chan struct{})
	unlisten, err := hub.Listen(carrier.Handlers{
		OnMessage: func(m carrier.Message) {
			select {
			case reports <- m:
			case <-over:
			}
		},
		OnQuestion: func(q carrier.Question) any { return ask(q, questions, over) },
		OnLoss: func() {
			select {
			case workLost <- struct{}{}:
			default: // the coordinator has not handled the last loss yet, and will publish everything then
			}
		},
	})
	if err != nil {
		return nil, err
	}
	stop := sync.OnceFunc(func() { close(over); unlisten() })
	defer stop()
	working, stopWorker := context.WithCancel(context.Background())
	defer stopWorker()
	ended := make(chan error, 1)
	if f.jobs > 0 {
		client, err := carrier.NewClient(nc, own, a.warnOnce(natsFailed))
		if err != nil {
			return nil, err
		}
		secrets, err := f.nats.secrets()
		if err != nil {
			return nil, err
		}
		self, err := self()
		if err != nil {
			return nil, err
		}
		worker := &suite.Worker{Folders: s.Folders(), Self: self, Name: own, Instance: rand.Text(), Suite: c.ID(),
			Version: config.Version, Dir: config.LocalDir, Program: program,
			Jobs: f.jobs, Client: client, Local: true, Secrets: secrets,
			OnNote: config.OnNote}
		go func() {
			err := worker.Run(working, kill)
			if err != nil {
				killed(err) // what it was given would never run
			}
			ended <- err
		}()
	} else {
		ended <- nil
	}
	if err = c.Run(ctx, kill, hub); err != nil {
		killed(err) // the worker's results cannot be recorded any more
	}
	stopWorker()
	err = errors.Join(err, <-ended)
	stop()
	if err == nil {
		bye, cancel := context.WithTimeout(context.Background(), removeTime)
		defer cancel()
		if err := hub.Remove(bye); err != nil {
			a.say.Warning("the suite's streams could not be removed from NATS: %v", err)
		}
	}
	results := c.Results()
	return results, errors.Join(err, writeResults(dir, results))
}

// serverMemory is how much memory this process may use for its NATS server, in bytes, besides what the suite uses. The
// server caches each message that it sends for ten seconds, and only the garbage collector frees it.
const serverMemory = 128 << 20

// limitMemory makes the garbage collector run in time, unless the user set GOMEMLIMIT.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		debug.SetMemoryLimit(int64(m.HeapAlloc) + serverMemory)
	}
}

// removeTime limits how long the removal of the streams may take.
const removeTime = 10 * time.Second

// ask passes a worker's question to the coordinator and returns its answer; nil means that there is none.
func ask(q carrier.Question, questions chan<- suite.Question, over <-chan struct{}) any {
	answer := make(chan *suite.Welcome, 1)
	select {
	case questions <- suite.Question{Question: q, Answer: answer}:
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

// dial connects the coordinator to the NATS servers of --nats, or else to one that it starts in this process with the
// scratch directory dir. end closes the connection, and that server.
func (a *app) dial(ctx context.Context, f *runFlags, dir string) (_ *nats.Conn, end func() error, err error) {
	if f.nats.url != "" || f.listen != "" {
		if err := hideMemory(); err != nil {
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
	listen, err := f.nats.listen(f.listen)
	if err != nil {
		return nil, nil, err
	}
	server, err := carrier.Serve(dir, listen)
	if err != nil {
		return nil, nil, err
	}
	if f.listen != "" {
		a.say.Info("workers can connect at %s", server.Address())
		if listen.Token == "" {
			a.say.Warning("every process of this machine, an agent too, can take work at %s: give --token-file",
				server.Address())
		}
	}
	nc, err := server.Connect()
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return nc, func() error { nc.Close(); return server.Close() }, nil
}

// self is the path of this program, as it was called.
func self() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return os.Executable()
	}
	return filepath.Abs(path)
}

// findProgram returns the path of assay-run: the given one, else the one beside this program, else the one in PATH.
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
		return "", console.WithHint(errors.New("assay-run is neither beside this program nor in PATH"),
			"name it with --assay-run")
	}
	return path, nil
}

// printSummary prints a line for each agent, and where the results are.
func (a *app) printSummary(dir string, r *schema.SuiteResults) {
	for i := range r.Agents {
		a.say.Info("%s", pages.Agent(&r.Agents[i]))
	}
	a.say.Info("results: %s; run assay-suite report %s for a page of them", filepath.Join(dir, "results.json"), dir)
}
