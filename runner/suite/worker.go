//go:build linux

package suite

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/task"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// DefaultLease is the default of Config.Lease.
const DefaultLease = 30 * time.Second

// tailBytes is how much of assay-run's stderr a worker reports.
const tailBytes = 4 << 10

// hello is a worker's question to coordinators: first for a suite to join, then as the heartbeat of its tries, three
// times in a lease.
type hello struct {
	Suite    string `json:"suite,omitzero"` // the id of the suite that it has joined; empty means any
	Instance string `json:"instance"`       // random: tells this process of the worker from others of its name
	Version  string `json:"version"`        // of assay-suite
	Slots    int    `json:"slots"`          // how many tries it runs at once; 0 means that it leaves
	// Running are the tokens of the tries that it runs.
	Running []string `json:"running,omitzero"`
	// Stopped means that this process was stopped for most of a lease since the last answer, as by SIGSTOP.
	Stopped bool `json:"stopped,omitzero"`
	// MissingWorkspace is the digest of a workspace that the worker needs; empty means none.
	MissingWorkspace string `json:"missing_workspace,omitzero"`
}

// Welcome is a coordinator's answer.
type Welcome struct {
	Suite   string `json:"suite"` // the suite's id
	Name    string `json:"name"`
	LeaseNS int64  `json:"lease_ns"`
	// Refused says why the coordinator gives this worker no work; empty if it does.
	Refused string `json:"refused,omitzero"`
	// GiveUp are the tokens of tries that the worker must give up: the coordinator refuses their results.
	GiveUp []string `json:"give_up,omitzero"`
	// SendError says why the coordinator cannot send the workspace of MissingWorkspace; empty if it can.
	SendError string `json:"send_error,omitzero"`
}

// report is a worker's message about a try. Either Began or Ended is set.
type report struct {
	Token    string            `json:"token"`
	Instance string            `json:"instance"` // of the worker
	Began    *schema.SuiteHost `json:"began,omitzero"`
	Ended    *tryEnd           `json:"ended,omitzero"`
}

// clean makes a worker's texts short and printable. It replaces a class that only the coordinator may give by
// assay_run: tries of such a class do not count, and a worker must not claim that.
func (r *report) clean() {
	limits := map[*string]int{}
	if b := r.Began; b != nil {
		limits[&b.AssayRun], limits[&b.Kernel], limits[&b.AgentDigest] = 200, 200, 200
	}
	if e := r.Ended; e != nil {
		limits[&e.Reason], limits[&e.Stderr], limits[&e.Signal], limits[&e.Disk] = tailBytes, tailBytes, 200, 200
		switch e.Class {
		case "", schema.SuiteSetup, schema.SuiteDiskFull, schema.SuiteEngine, schema.SuiteWorkerLost:
		default:
			e.Class = schema.SuiteAssayRun
		}
	}
	for s, limit := range limits {
		*s = schema.Lines((*s)[:min(limit, len(*s))])
	}
}

// tryEnd says how a try ended.
type tryEnd struct {
	// Class and Reason say why assay-run could not be started, or its bundle not be handed over; otherwise both are
	// empty.
	Class  string `json:"class,omitzero"`
	Reason string `json:"reason,omitzero"`
	// ExitCode is that of assay-run. Signal is the name of the signal that ended it; the worker never sends one.
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitzero"`
	// Disk says how the try filled the disk, or exceeded its limit; empty if it did not.
	Disk string `json:"disk,omitzero"`
	// DiskHidden means that the try may have used more of the disk than the worker saw, in deleted files that are open.
	DiskHidden bool `json:"disk_hidden,omitzero"`
	// Stderr is the end of assay-run's stderr.
	Stderr string `json:"stderr,omitzero"`
	// Bundle is the bundle's path, or its name in the carrier's store if Stored is true. Empty means that there is
	// none.
	Bundle string `json:"bundle,omitzero"`
	Stored bool   `json:"stored,omitzero"`
	// Size and Digest describe a stored bundle. Other workers may overwrite it, but cannot report another digest, since
	// they do not know the token.
	Size   int64  `json:"size,omitzero"`
	Digest string `json:"digest,omitzero"`
}

// client is the worker's end of a carrier. Its calls wait while the carrier does not answer; see [carrier.Client].
type client interface {
	Ask(ctx context.Context, question, answer any) error
	Join(suite string)
	Next(ctx context.Context, into any) error
	Send(ctx context.Context, key string, message any) error
	Store(ctx context.Context, name string, r io.ReaderAt, size int64) error
	Workspace(ctx context.Context, name string, w io.Writer) error
}

// Worker runs tries. Set its exported fields before Run.
type Worker struct {
	// Name is the worker's name. Instance is random, and tells this process of the worker from others of its name.
	Name, Instance string
	// Suite is the id of the only suite that it joins; empty means any.
	Suite string
	// Version is that of assay-suite. A coordinator only gives work to workers of its own version.
	Version string
	// Dir is a directory that no other worker uses. It holds the workspaces of running tries.
	Dir string
	// Program is the path of assay-run.
	Program string
	// Jobs is how many tries run at once.
	Jobs   int
	Client client
	// Local says that the coordinator is in this process: bundles stay in Dir instead of being sent.
	Local bool
	// Folders says that the suite's tasks are folders, and Self is the path of assay-suite, which runs their attempts.
	Folders bool
	Self    string
	// Secrets are files that no agent has a reason to read: reading one is a suspicion.
	Secrets []string
	// OnNote is called with messages for the user. It may be nil.
	OnNote func(string)

	host     schema.SuiteHost
	memory   memory
	disk     diskUse
	programs programs
	joined   *Welcome              // of the suite that it works for
	sending  sync.Mutex            // held while a bundle is stored
	fetching sync.RWMutex          // write-locked while a workspace is fetched, read-locked while one is copied
	building sync.Mutex            // held while the image of a task is made
	removing sync.WaitGroup        // of containers, while the next try runs
	mu       sync.Mutex            // guards what follows
	tries    map[string]*activeTry // by token
	started  map[string]bool       // the tasks that could be started, see start
}

// activeTry is a try that this worker has taken.
type activeTry struct {
	cancelRun    context.CancelCauseFunc
	cancelReport context.CancelCauseFunc
	// idle says that nothing runs for the try: it waits for its workspace, or for its result to be sent.
	idle bool
}

var (
	errOver          = errors.New("the try is not this worker's any more")
	errNoCoordinator = errors.New("no coordinator has answered for too long")
)

const (
	// joinPause is the time between two questions for a suite or a workspace.
	joinPause = 500 * time.Millisecond
	// keepLeases is for how many leases at most a worker keeps tries and results while no coordinator answers.
	keepLeases = 10
	// reportTime limits how long reports may take after kill has ended.
	reportTime = 10 * time.Second
)

// ErrRefused is wrapped by the error of Run when the coordinator refuses to give work to this worker.
var ErrRefused = errors.New("the suite refuses this worker")

// ErrBusy is wrapped by the error of Run when another worker uses the directory.
var ErrBusy = errors.New("another worker uses the directory")

func (w *Worker) note(format string, args ...any) {
	if w.OnNote != nil {
		w.OnNote(fmt.Sprintf(format, args...))
	}
}

// Run joins a suite, takes tries and runs them. When the suite is over it joins the next one. First it ends and removes
// what a worker that died left in Dir. When ctx ends it takes no more tries, and when kill ends it cancels those that
// run. It returns when none runs any more.
func (w *Worker) Run(ctx, kill context.Context) (err error) {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	lock, err := os.Open(w.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w %s", ErrBusy, w.Dir)
	case err != nil:
		return fmt.Errorf("lock %s: %w", w.Dir, err)
	}
	if err := w.sweep(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	if w.Folders {
		if err := trial.Remove(kill, w.suiteLabel()); err != nil { // also if nothing is left to do
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	version, err := exec.CommandContext(kill, w.Program, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", w.Program, err)
	}
	w.host = schema.SuiteHost{Worker: w.Name, AssayRun: strings.TrimSpace(string(version)), Kernel: kernelRelease()}
	for ctx.Err() == nil {
		welcome, err := w.join(ctx)
		if err == nil {
			err = w.serve(ctx, kill, welcome)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// join waits until a coordinator answers.
func (w *Worker) join(ctx context.Context) (*Welcome, error) {
	for first := true; ; first = false {
		welcome := &Welcome{}
		err := w.Client.Ask(ctx, w.hello(w.Suite, w.Jobs), welcome)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && welcome.Refused != "":
			return nil, fmt.Errorf("%w: %s", ErrRefused, welcome.Refused)
		case err == nil:
			return welcome, nil
		case first && !w.Local: // a coordinator in this process answers soon
			w.note("no suite is running; waiting for one")
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinPause):
		}
	}
}

func (w *Worker) hello(suite string, slots int) hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	return hello{Suite: suite, Instance: w.Instance, Version: w.Version, Slots: slots,
		Running: slices.Sorted(maps.Keys(w.tries))}
}

// serve runs tries of one suite until ctx ends or the suite is over.
func (w *Worker) serve(ctx, kill context.Context, to *Welcome) (err error) {
	if !w.Local {
		w.note("joined the suite %s", to.Name)
	}
	w.Client.Join(to.Suite)
	w.joined, w.tries, w.started = to, map[string]*activeTry{}, map[string]bool{}
	defer func() { err = errors.Join(err, workspace.Remove(w.sentDir())) }()
	here, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	beating, stop := context.WithCancel(context.Background())
	var heartbeat, slots sync.WaitGroup
	heartbeat.Go(func() { w.heartbeat(beating, ctx.Done(), leave, to) })
	failed := make([]error, w.Jobs)
	for i := range w.Jobs {
		slots.Go(func() {
			if failed[i] = w.runSlot(here, kill, i); failed[i] != nil {
				leave(failed[i])
			}
		})
	}
	slots.Wait()
	w.removing.Wait()
	stop()
	heartbeat.Wait()
	if ctx.Err() != nil && !w.Local {
		goodbye, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = w.Client.Ask(goodbye, w.hello(to.Suite, 0), &Welcome{}) // if it is lost, the coordinator waits for a lease
	}
	return errors.Join(failed...)
}

// heartbeat tells the coordinator three times in a lease which tries still run, and gives up those that the
// coordinator does not want any more. When no coordinator has answered for almost keepLeases, it gives up all tries and
// calls leave, so that the worker takes other work; when stopping is closed it waits for one lease only. It also calls
// leave when another suite's coordinator answers. It notices that this process was stopped: nothing here waits for
// longer than a third of a lease.
func (w *Worker) heartbeat(ctx context.Context, stopping <-chan struct{}, leave context.CancelCauseFunc,
	to *Welcome) {
	lease := time.Duration(to.LeaseNS)
	tick := time.NewTicker(max(lease/3, time.Millisecond))
	defer tick.Stop()
	ran, stopped := time.Now(), false
	runs := func() {
		stopped = stopped || time.Since(ran) > lease*2/3
		ran = time.Now()
	}
	for lastAnswer := time.Now(); ; {
		answer, other := &Welcome{}, &Welcome{}
		ask := func(suite string, answer *Welcome) error {
			asking, stop := context.WithTimeout(ctx, lease/3) // the next question follows then
			defer stop()
			question := w.hello(suite, w.Jobs)
			question.Stopped = stopped
			err := w.Client.Ask(asking, question, answer)
			stopped = stopped && err != nil
			runs()
			return err
		}
		err := ask(to.Suite, answer)
		patience := (keepLeases - 1) * lease
		select {
		case <-stopping:
			patience = lease
		default:
		}
		switch {
		case err == nil && answer.Refused != "":
			leave(fmt.Errorf("%w: %s", ErrRefused, answer.Refused))
		case err == nil:
			lastAnswer = time.Now()
			w.giveUp(errOver, func(token string, _ *activeTry) bool { return slices.Contains(answer.GiveUp, token) })
		case time.Since(lastAnswer) > patience:
			leave(errNoCoordinator) // first, so that no slot takes another try
			w.giveUp(errNoCoordinator, func(string, *activeTry) bool { return true })
		case w.Suite == "" && ask("", other) == nil && other.Suite != to.Suite:
			leave(fmt.Errorf("the suite %s is over", to.Name))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			runs()
		}
	}
}

// giveUp cancels the chosen tries and their reports.
func (w *Worker) giveUp(why error, chosen func(token string, t *activeTry) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token, t := range w.tries {
		if chosen(token, t) {
			t.cancelRun(why)
			t.cancelReport(why)
		}
	}
}

// localBundle is where a worker of this process leaves the bundle of the try with the given token. The agent may see
// the path, so it has the run's id and not the token in it.
func localBundle(dir, token string) string { return filepath.Join(dir, "bundle-"+runID(token)) }

// artifacts ends the name of the file with a try's artifacts, after the name of its bundle.
const artifacts = "-" + trial.ArtifactsFile

// renameIfThere renames a file that may not exist.
func renameIfThere(from, to string) error {
	if err := os.Rename(from, to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// discard removes what localBundle names, and the try's artifacts.
func discard(dir, token string) {
	at := localBundle(dir, token)
	_, _ = os.Remove(at), os.Remove(at+artifacts)
}

func (w *Worker) slotDir(i int) string { return filepath.Join(w.Dir, fmt.Sprintf("slot-%d", i)) }

// sweep removes what a worker that died left in the directory. Its runs end by themselves, because the other end of
// their lifeline is closed. A run that does not is killed.
func (w *Worker) sweep(ctx context.Context) error {
	slots, err := filepath.Glob(filepath.Join(w.Dir, "slot-*"))
	if err != nil {
		return err
	}
	for _, dir := range slots {
		if err := w.recover(ctx, dir); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil { // after a power failure files may be incomplete, and nobody needs the result any more
			w.note("cannot recover the run of a worker that died; removing it: %v", err)
		}
		if err := w.clear(dir); err != nil {
			return err
		}
	}
	if err := workspace.Remove(w.sentDir()); err != nil {
		return err
	}
	bundles, err := filepath.Glob(filepath.Join(w.Dir, "bundle-*"))
	for _, bundle := range bundles {
		err = errors.Join(err, os.Remove(bundle))
	}
	return err
}

// clear removes the directory of a slot. If it cannot, because of what an agent left there, it moves the directory away
// and says so: other attempts need the slot.
func (w *Worker) clear(dir string) error {
	err := workspace.Remove(dir)
	if err == nil {
		return nil
	}
	aside, merr := os.MkdirTemp(w.Dir, "left-*")
	if merr == nil {
		merr = os.Rename(dir, filepath.Join(aside, filepath.Base(dir)))
	}
	if merr != nil {
		return errors.Join(err, merr)
	}
	w.note("cannot remove what an agent left; moved it to %s: %v", aside, err)
	return nil
}

// endTime is how long a run may take to end after its lifeline was closed.
const endTime = 20 * time.Second

// recover seals the bundle of an assay-run that died in a slot. It waits for one that still runs, and kills it after
// endTime.
func (w *Worker) recover(ctx context.Context, slot string) error {
	spool := filepath.Join(slot, "spool")
	for began := time.Now(); ; {
		left, err := os.ReadDir(spool)
		if len(left) == 0 {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}
		out, err := exec.CommandContext(ctx, w.Program, "recover", "--all", "--spool-dir", spool).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("the run is alive")) {
			return fmt.Errorf("recover the run in %s: %s", slot, bytes.TrimSpace(out))
		}
		if time.Since(began) > endTime {
			if err := killRecorder(specFile(slot)); err != nil {
				return err
			}
		}
		select { // the run is ending, since its lifeline is closed
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func specFile(slot string) string { return filepath.Join(slot, "spec.json") }

// runSlot runs one try after the other.
func (w *Worker) runSlot(ctx, kill context.Context, i int) error {
	for {
		var work tryWork
		if err := w.Client.Next(ctx, &work); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.handle(kill, &work, i)
		if err := w.clear(w.slotDir(i)); err != nil {
			return err
		}
	}
}

// handle runs one try, and reports that it began and how it ended.
func (w *Worker) handle(kill context.Context, work *tryWork, i int) {
	run, cancelRun := context.WithCancelCause(kill)
	defer cancelRun(nil)
	reporting, cancelReport := context.WithCancelCause(context.WithoutCancel(kill))
	defer cancelReport(nil)
	defer context.AfterFunc(kill, func() {
		time.AfterFunc(reportTime, func() { cancelReport(context.Cause(kill)) })
	})()
	t := &activeTry{cancelRun: cancelRun, cancelReport: cancelReport}
	w.mu.Lock()
	w.tries[work.Token] = t
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.tries, work.Token)
		w.mu.Unlock()
	}()
	host := w.host
	host.AgentDigest = w.programs.digest(work.Spec.Command[2])
	err := w.Client.Send(run, work.Token+".began",
		report{Token: work.Token, Instance: w.Instance, Began: &host})
	if err == nil {
		end := w.try(run, reporting, work, i)
		w.setIdle(t, true)
		if context.Cause(run) != errOver {
			err = w.Client.Send(reporting, work.Token+".ended",
				report{Token: work.Token, Instance: w.Instance, Ended: end})
		}
	}
	if context.Cause(reporting) == errOver && w.Local {
		discard(w.Dir, work.Token) // the coordinator will not take it
	}
	if cause := context.Cause(reporting); cause != nil {
		w.note("gave up %s, try %d: %v", work.Attempt, work.Try, cause)
	} else if err != nil && kill.Err() == nil {
		w.note("%s, try %d: %v", work.Attempt, work.Try, err)
	}
}

func (w *Worker) setIdle(t *activeTry, idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.idle = idle
}

// try runs assay-run and hands its bundle over. run ends the run, and reporting what follows it.
func (w *Worker) try(run, reporting context.Context, work *tryWork, i int) *tryEnd {
	release, err := w.memory.reserve(run, int64(work.Spec.Limits.Memory))
	if err != nil {
		return &tryEnd{Class: schema.SuiteWorkerLost, Reason: err.Error()}
	}
	defer release()
	dir := w.slotDir(i)
	if err := w.prepare(run, dir, work, i); err != nil {
		return setupFault(err)
	}
	if end := w.start(run, dir, work); end != nil {
		return end
	}
	end := w.run(run, dir, work, specFile(dir), "-o", filepath.Join(dir, "run.tar.gz"))
	if end = w.afterTrial(work, end); end.Class != "" {
		return end
	}
	if context.Cause(run) == errOver {
		return end
	}
	return w.handOver(reporting, dir, work, end)
}

// start starts everything that a task's runs start, with a command that does nothing, before this worker's first try of
// the task. If that fails, it returns how the try ended: no agent has run.
func (w *Worker) start(run context.Context, dir string, work *tryWork) *tryEnd {
	w.mu.Lock()
	started := w.started[work.Task]
	w.mu.Unlock()
	if started {
		return nil
	}
	s := *work.Spec
	if p := work.Plan; p == nil {
		s.Command = []string{"sh", "-c", findsProgram(s.Command[2])}
	} else {
		alone, file := *p, filepath.Join(dir, "plan-start.json")
		alone.Name, alone.Dir, alone.Changes = p.Name+"-start", p.Dir+"-start", ""
		alone.Command, alone.Setup, alone.Solve, alone.Recipe, alone.Log = ":", "", false, "", ""
		alone.Ports = nil
		if err := errors.Join(os.Mkdir(alone.Dir, 0o700), alone.Save(file)); err != nil {
			return setupFault(err)
		}
		s.Env = maps.Clone(s.Env)
		s.Env[envPlan] = file
		first := *work
		first.Plan, work = &alone, &first
	}
	s.RunID, s.Contract, s.ContractBaseline, s.Evaluation = s.RunID+"_start", "", false, ""
	s.WorkspaceChanges, s.Require = false, nil
	spec, err := s.MarshalJSON()
	at, out, said := filepath.Join(dir, "start.json"), filepath.Join(dir, "start.tar.gz"), filepath.Join(dir, "started")
	if err = errors.Join(err, os.WriteFile(at, spec, 0o600)); err != nil {
		return setupFault(err)
	}
	end := w.run(run, dir, work, at, "-o", out, "--result", said)
	if end = w.afterTrial(work, end); end.Class != "" || run.Err() != nil {
		return end
	}
	d := decision{schema.SuiteInfrastructure, schema.SuiteAssayRun, end.Stderr}
	res := &schema.Result{}
	if data, err := os.ReadFile(said); err == nil && json.Unmarshal(data, res) == nil {
		d = decide(res, "")
	}
	for _, name := range []string{at, out, said} {
		_ = os.Remove(name) // the slot is cleared after the try, too
	}
	if d.Verdict == schema.SuiteInfrastructure {
		return &tryEnd{Class: d.Class, Reason: d.Reason}
	}
	if d.Verdict != schema.SuitePassed && res.ExitCode != nil && *res.ExitCode == schema.ExitNotFound {
		return setupFault(fmt.Errorf("the agent's program is not found in the workspace, under the task's policy: %s",
			strings.TrimSuffix(strings.TrimPrefix(s.Command[2], looksFor), elseMissing)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started[work.Task] = true
	return nil
}

// findsProgram is a shell command that exits with [schema.ExitNotFound] if the first word of another is a program that
// does not exist. Of such a command, it is that command.
func findsProgram(command string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	switch {
	case strings.HasPrefix(command, looksFor):
		return command
	case !programName.MatchString(word):
		return ":"
	}
	return looksFor + word + elseMissing
}

// The parts of the command of findsProgram.
const looksFor, elseMissing = "command -v ", " >/dev/null || exit 127"

func setupFault(err error) *tryEnd {
	return &tryEnd{Class: faultClass(err.Error(), schema.SuiteSetup), Reason: err.Error()}
}

// copyName is the name of the copy of the workspace in a slot's directory.
const copyName = "work"

// prepare creates the slot's directory with the try's workspace and files, and completes the spec.
func (w *Worker) prepare(ctx context.Context, dir string, work *tryWork, i int) error {
	if err := errors.Join(workspace.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	copied := filepath.Join(dir, copyName)
	err := copyWorkspace(ctx, work.Workspace, work.WorkspaceDigest, copied)
	if err != nil && !w.Local && work.Workspace != "" && !errors.Is(err, syscall.ENOSPC) {
		err = w.copyFetched(ctx, work, copied)
	}
	if err != nil {
		return fmt.Errorf("copy the workspace: %w", err)
	}
	s, at := work.Spec, cmp.Or(work.Place, copied)
	s.Workdir = at
	s.Env[envCeiling] = filepath.Dir(at) // what is above may be the user's repository
	put := func(name string, data []byte) (string, error) {
		path := filepath.Join(dir, name)
		return path, os.WriteFile(path, data, 0o600)
	}
	prompt, err := put("prompt", []byte(work.Prompt))
	if err != nil {
		return err
	}
	s.Env[envPromptFile] = prompt
	if len(work.Prompt) > maxWord {
		s.Env[envPrompt] = inFile(prompt)
	}
	for _, c := range []struct {
		fileCopy
		kind string
		to   *string
	}{{work.Contract, "contract", &s.Contract}, {work.Policy, "policy", &s.Policy},
		{work.Prices, "prices", &s.Model.Prices}} {
		if c.Name == "" {
			continue
		}
		if *c.to, err = put("file-"+c.kind+filepath.Ext(c.Name), c.Data); err != nil {
			return err
		}
	}
	closed := work.Evaluation.ClosedBook.Wanted() && !s.Containers
	if s.Policy == "" && closed {
		if s.Policy, err = put("file-policy.yaml", []byte("version: 1\n")); err != nil {
			return err
		}
	}
	if s.Policy != "" {
		var source []string
		if real, err := filepath.EvalSymlinks(work.Workspace); err == nil && work.Workspace != "" &&
			real != work.Place {
			source = []string{real}
		}
		s.Policy, err = confine(s.Policy, closed, slices.Concat([]string{w.offLimits()}, work.Private, w.Secrets),
			source, []string{at, prompt})
		if err != nil {
			return err
		}
	}
	work.Evaluation.Workspace = []string{copied}
	if work.Plan != nil {
		if err := w.prepareTrial(ctx, dir, work); err != nil {
			return err
		}
	}
	if work.Place != "" {
		work.Evaluation.Workspace = []string{work.Place, copied}
	}
	w.addOffLimits(&work.Evaluation, i)
	evaluation, err := evaluationFile(work.Evaluation)
	if err != nil {
		return err
	}
	if s.Evaluation, err = put("evaluation.yaml", evaluation); err != nil {
		return err
	}
	spec, err := s.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = put("spec.json", spec)
	return err
}

// sentDirName is the directory below a worker's that keeps the fetched workspaces until the suite is over.
const sentDirName = "workspaces"

func (w *Worker) sentDir() string { return filepath.Join(w.Dir, sentDirName) }

// copyFetched makes the directory to a copy of the try's workspace, which it fetches from the coordinator and keeps for
// later tries. If an agent has changed the kept workspace, it fetches it again.
func (w *Worker) copyFetched(ctx context.Context, work *tryWork, to string) error {
	kept := filepath.Join(w.sentDir(), sentName(work.WorkspaceDigest))
	copyKept := func() error {
		if err := workspace.Remove(to); err != nil {
			return err
		}
		return copyWorkspace(ctx, filepath.Join(kept, sentTree), work.WorkspaceDigest, to)
	}
	w.fetching.RLock()
	err := copyKept()
	w.fetching.RUnlock()
	if err == nil {
		return nil
	}
	w.fetching.Lock()
	defer w.fetching.Unlock()
	if copyKept() == nil { // another try has fetched it meanwhile
		return nil
	}
	if err := errors.Join(workspace.Remove(kept), os.MkdirAll(w.sentDir(), 0o700)); err != nil {
		return err
	}
	w.mu.Lock()
	t := w.tries[work.Token]
	w.mu.Unlock()
	w.setIdle(t, true)
	err = w.fetch(ctx, work, kept)
	w.setIdle(t, false)
	if err != nil {
		return errors.Join(err, workspace.Remove(kept))
	}
	return copyKept()
}

// fetch asks the coordinator for the try's workspace, and unpacks it to a new directory.
func (w *Worker) fetch(ctx context.Context, work *tryWork, to string) error {
	for {
		question, answer := w.hello(w.joined.Suite, w.Jobs), &Welcome{}
		question.MissingWorkspace = work.WorkspaceDigest
		if err := w.Client.Ask(ctx, question, answer); err == nil && answer.SendError != "" {
			return errors.New(answer.SendError)
		}
		r, in := io.Pipe()
		unpacked := make(chan error, 1)
		go func() {
			err := unpackSent(r, to)
			r.CloseWithError(err)
			unpacked <- err
		}()
		err := w.Client.Workspace(ctx, filepath.Base(to), in)
		in.CloseWithError(err)
		switch uerr := <-unpacked; {
		case err == nil:
			return uerr
		case !errors.Is(err, carrier.ErrNoWorkspace):
			return err
		}
		if err := workspace.Remove(to); err != nil {
			return err
		}
		select { // it is not complete yet
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(joinPause):
		}
	}
}

// run runs assay-run. The lifeline is a pipe: when this process closes its end, or dies, assay-run ends the run.
func (w *Worker) run(kill context.Context, dir string, work *tryWork, spec string, output ...string) *tryEnd {
	r, lifeline, err := os.Pipe()
	if err != nil {
		return setupFault(err)
	}
	defer lifeline.Close()
	stderr := &tail{}
	cmd := exec.Command(w.Program, append([]string{"run", "--spec", spec, "--spool-dir", filepath.Join(dir, "spool"),
		"--force", "--lifeline", "3"}, output...)...)
	cmd.ExtraFiles, cmd.Stderr, cmd.Env = []*os.File{r}, stderr, environ(work.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C on the terminal must reach assay-suite only
	cmd.WaitDelay = time.Second
	start := cmd.Start
	if work.Place != "" {
		start = func() error { return placed(filepath.Join(dir, copyName), work.Place, cmd.Start) }
	}
	err = start()
	r.Close()
	if err != nil {
		return setupFault(err)
	}
	stop := context.AfterFunc(kill, func() { lifeline.Close() })
	stopWatch := w.disk.watch(dir, runID(work.Token), cmd.Process.Pid, work.Disk, func() { lifeline.Close() })
	err = cmd.Wait()
	stop()
	e := &tryEnd{Stderr: stderr.String()}
	e.Disk, e.DiskHidden = stopWatch()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal().String()
	} else if cmd.ProcessState != nil {
		e.ExitCode = new(cmd.ProcessState.ExitCode())
	} else {
		return setupFault(err)
	}
	return e
}

// handOver hands the bundle to the coordinator, and adds its place to e. If assay-run left no bundle, it recovers the
// run first.
func (w *Worker) handOver(ctx context.Context, dir string, work *tryWork, e *tryEnd) *tryEnd {
	if e.Class != "" {
		return e
	}
	bundle := filepath.Join(dir, "run.tar.gz")
	if !isRegular(bundle) { // assay-run died, or could not replace what the agent put there
		if err := errors.Join(workspace.Remove(bundle), w.recover(ctx, dir)); err != nil {
			e.Stderr += "\n" + err.Error()
		}
	}
	if !isRegular(bundle) {
		return e
	}
	if w.Local {
		kept := localBundle(w.Dir, work.Token)
		err := os.Rename(bundle, kept)
		if work.Plan != nil {
			err = errors.Join(err, renameIfThere(filepath.Join(work.Plan.Dir, trial.ArtifactsFile), kept+artifacts))
		}
		if err != nil {
			return setupFault(err)
		}
		e.Bundle = kept
		return e
	}
	if err := w.send(ctx, bundle, work, e); err != nil {
		return setupFault(fmt.Errorf("store the bundle: %w", err))
	}
	return e
}

// send stores a bundle under its run's id, one bundle at a time.
func (w *Worker) send(ctx context.Context, bundle string, work *tryWork, e *tryEnd) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	f, err := os.Open(bundle)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if e.Size, err = io.Copy(sum, f); err != nil {
		return err
	}
	e.Bundle, e.Stored, e.Digest = runID(work.Token), true, "sha256:"+hex.EncodeToString(sum.Sum(nil))
	return w.Client.Store(ctx, e.Bundle, f, e.Size)
}

// offLimits is the directory that a sandbox hides from agents, except for their own workspace: the suite's, or the
// worker's on another machine.
func (w *Worker) offLimits() string {
	if w.Local {
		return filepath.Dir(filepath.Dir(w.Dir)) // Dir is work/local in the suite's directory
	}
	return w.Dir
}

// addOffLimits adds the files in this worker's directories to a try's evaluation file that its agent must not touch:
// its own evidence and contract, secrets, and the files of other attempts. i is the try's slot.
func (w *Worker) addOffLimits(e *schema.EvaluationDefinition, i int) {
	slot := literal(w.slotDir(i))
	for _, name := range []string{"evaluation.yaml", "spec.json", "spool/**", "file-*"} {
		e.Hidden = append(e.Hidden, slot+"/"+name)
		e.Watched = append(e.Watched, slot+"/"+name)
	}
	e.Watched = append(e.Watched, slot+"/run.tar.gz*", literal(w.sentDir())+"/**")
	for _, secret := range w.Secrets {
		e.Hidden = append(e.Hidden, literal(secret))
	}
	for other := range w.Jobs {
		if other != i {
			e.Others = append(e.Others, literal(w.slotDir(other))+"/**")
		}
	}
	if w.Local {
		for _, name := range suiteFiles {
			e.Others = append(e.Others, literal(w.offLimits())+"/"+name)
		}
	}
}

// isRegular reports whether the path is that of a regular file.
func isRegular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// environ is the environment of a run: PATH, HOME, the locale, and the variables with the given names.
func environ(names []string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "PATH" && name != "HOME" && name != "LANG" && name != "LANGUAGE" &&
			!strings.HasPrefix(name, "LC_") &&
			!slices.Contains(names, name)
	})
}

// programs caches the digests of programs, since some have hundreds of megabytes. It is safe for concurrent use.
type programs struct {
	mu    sync.Mutex
	known map[string]knownProgram // by path
}

type knownProgram struct {
	unix.Stat_t
	digest string
}

// digest is the digest of the program that is the first word of a shell command; empty if there is no such program.
func (p *programs) digest(command string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	path, err := exec.LookPath(word)
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.known[path]; k.digest != "" && k.Dev == now.Dev && k.Ino == now.Ino && k.Size == now.Size &&
		k.Mtim == now.Mtim && k.Ctim == now.Ctim {
		return k.digest
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	if p.known == nil {
		p.known = map[string]knownProgram{}
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	p.known[path] = knownProgram{now, digest}
	return digest
}

// tail is a writer that keeps the last tailBytes.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return schema.Readable(string(t.data)) }

// suiteLabel tells the containers of this worker's suite from those of others.
func (w *Worker) suiteLabel() string { return digestOf(w.offLimits())[len("sha256:"):][:32] }

// prepareTrial makes the image of a task, and completes the plan, the spec and the evaluation definition of an attempt.
func (w *Worker) prepareTrial(ctx context.Context, dir string, work *tryWork) error {
	p := work.Plan
	p.Name, p.Suite, p.Dir = "assay-"+runID(work.Token), w.suiteLabel(), filepath.Join(dir, "judge")
	p.Changes = filepath.Join(work.Spec.Workdir, trial.ChangesFile)
	digest, err := digestTree(filepath.Join(p.Task.Dir, task.Environment))
	if p.Task.Image == "" && err != nil {
		return err
	}
	w.building.Lock()
	p.Image, err = trial.Prepare(ctx, p.Task, digest, p.Judges)
	w.building.Unlock()
	if err != nil {
		return err
	}
	p.Env[envAttempt] = strconv.Itoa(work.Attempt.Attempt)
	if p.Recipe != "" {
		p.Program = w.Program
		if work.Spec.AgentShim != specfile.ShimNone {
			p.Log = filepath.Join(dir, "calls.ndjson")
			work.Spec.SDKEventLog = p.Log
			// Users of the container write to it. Those of this host cannot enter the directory.
			if err := errors.Join(os.WriteFile(p.Log, nil, 0o666), os.Chmod(p.Log, 0o666)); err != nil {
				return err
			}
		}
	}
	file := filepath.Join(dir, "plan.json")
	if err := errors.Join(os.Mkdir(p.Dir, 0o700), p.Save(file)); err != nil {
		return err
	}
	work.Spec.Env[envSelf], work.Spec.Env[envPlan] = w.Self, file
	derive(&work.Evaluation, p.Task.Evaluation(p.Workdir))
	return nil
}

// afterTrial begins to remove what an attempt made, and says if its agent could not be started.
func (w *Worker) afterTrial(work *tryWork, end *tryEnd) *tryEnd {
	if work.Plan == nil {
		return end
	}
	w.removing.Go(func() {
		if err := work.Plan.Remove(context.Background()); err != nil {
			w.note("containers of %s were not removed: %v", work.Attempt, err)
		}
	})
	if fault, err := os.ReadFile(filepath.Join(work.Plan.Dir, trial.FaultFile)); err == nil && end.Class == "" {
		return &tryEnd{Class: schema.SuiteEngine, Reason: string(fault)}
	}
	return end
}
