//go:build linux

package suite

import (
	"bytes"
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
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// DefaultLease is how long a try whose worker is not heard of is waited for.
const DefaultLease = 30 * time.Second

// tailBytes is how much of what assay-run said a worker tells.
const tailBytes = 4 << 10

// Hello is what a worker asks coordinators: first for a suite, then three times in a lease about its tries.
type Hello struct {
	Suite   string `json:"suite,omitzero"` // the id of the one that it has joined; empty for any
	Life    string `json:"life"`           // random: tells the worker's process from others of the same name
	Version string `json:"version"`        // of assay-suite
	Slots   int    `json:"slots"`          // how many tries it runs at once; 0: it leaves
	// Trying are the tokens of its tries, which live.
	Trying []string `json:"trying,omitzero"`
	// Lacks is the digest of a workspace that is not on its machine; empty for none.
	Lacks string `json:"lacks,omitzero"`
}

// Welcome is a coordinator's answer.
type Welcome struct {
	Suite   string `json:"suite"` // the suite's id
	Name    string `json:"name"`
	LeaseNS int64  `json:"lease_ns"`
	// Refused says why the worker gets no work from this coordinator; empty if it does.
	Refused string `json:"refused,omitzero"`
	// Over are the tokens of tries that are not the worker's any more: nobody waits for their results.
	Over []string `json:"over,omitzero"`
	// Unsent says why the workspace that the worker lacks cannot be sent; empty if it is, or will be.
	Unsent string `json:"unsent,omitzero"`
}

// Told is what a worker tells of a try.
type Told struct {
	Token string            `json:"token"`
	Life  string            `json:"life"`           // of the worker
	Began *schema.SuiteHost `json:"began,omitzero"` // the try begins
	Ended *Ended            `json:"ended,omitzero"` // it has ended
}

// clean keeps a worker's words short and printable, and its classes to those that a worker can know of: those that cost
// no retry are the coordinator's.
func (t *Told) clean() {
	words := map[*string]int{}
	if b := t.Began; b != nil {
		words[&b.AssayRun], words[&b.Kernel], words[&b.AgentDigest] = 200, 200, 200
	}
	if e := t.Ended; e != nil {
		words[&e.Reason], words[&e.Said], words[&e.Signal] = tailBytes, tailBytes, 200
		switch e.Class {
		case "", schema.SuiteSetup, schema.SuiteDiskFull, schema.SuiteEngine, schema.SuiteWorkerLost:
		default:
			e.Class = schema.SuiteAssayRun
		}
	}
	for s, most := range words {
		*s = strings.Map(func(r rune) rune {
			if r == '\n' || unicode.IsPrint(r) {
				return r
			}
			return '\uFFFD'
		}, strings.ToValidUTF8((*s)[:min(most, len(*s))], "\uFFFD"))
	}
}

// Ended says how a try ended.
type Ended struct {
	// Class and Reason tell of a fault that kept assay-run from being started; both are empty for none.
	Class  string `json:"class,omitzero"`
	Reason string `json:"reason,omitzero"`
	// ExitCode is assay-run's, and Signal the name of the signal that ended it, which the worker did not send.
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitzero"`
	// Said is the end of what assay-run said on stderr.
	Said string `json:"said,omitzero"`
	// Bundle is the bundle's path, or with Stored its name in the store; empty without one.
	Bundle string `json:"bundle,omitzero"`
	Stored bool   `json:"stored,omitzero"`
	// Size and Digest are those of a bundle in the store. Others may write there; only this worker tells the token.
	Size   int64  `json:"size,omitzero"`
	Digest string `json:"digest,omitzero"`
}

// line is the worker's end of a carrier. What it does waits while the carrier is away.
type line interface {
	Ask(ctx context.Context, question, answer any) error
	Join(suite string)
	Next(ctx context.Context, into any) error
	Tell(ctx context.Context, key string, message any) error
	Store(ctx context.Context, name string, r io.ReaderAt, size int64) error
	Workspace(ctx context.Context, name string, w io.Writer) error
}

// Worker runs tries. Its fields are set before Run.
type Worker struct {
	// Name tells the worker from others, and Life its process from others of the same name.
	Name, Life string
	// Suite is the id of the only suite that it joins; empty for any.
	Suite string
	// Version is that of assay-suite. A coordinator gives work to its own version alone.
	Version string
	// Dir is a directory that no other worker has. It holds the workspaces of running tries.
	Dir string
	// Program is assay-run.
	Program string
	// Jobs is how many tries run at once.
	Jobs int
	Line line
	// Local says that the coordinator sees Dir: bundles are left there.
	Local bool
	// Secrets are files that no agent has a reason to read: reading one is a suspicion.
	Secrets []string
	// OnNote is told what a user should know; it may be nil.
	OnNote func(string)

	host     schema.SuiteHost
	memory   memory // of the machine, for the limits of what runs
	programs programs
	joined   *Welcome     // the suite that it serves
	sending  sync.Mutex   // held while a bundle is stored
	fetching sync.RWMutex // held while a workspace is fetched, and for reading while it is copied
	mu       sync.Mutex
	trying   map[string]*trying // by token
}

// trying is a try that this worker has taken.
type trying struct {
	end    context.CancelCauseFunc // ends the run
	forget context.CancelCauseFunc // ends what is told of it
	idle   bool                    // its run has ended, or waits for its workspace
}

var (
	errOver      = errors.New("the try is not this worker's any more")
	errForgotten = errors.New("no coordinator has answered for too long")
)

const (
	// joinPause is between two looks for a suite.
	joinPause = 500 * time.Millisecond
	// patience is for how many leases without a coordinator a worker keeps a result.
	patience = 10
	// lastWords bounds what is told after kill ended.
	lastWords = 10 * time.Second
)

// ErrRefused is wrapped by the error of Run when the coordinator has no work for this worker.
var ErrRefused = errors.New("the suite does not take this worker")

// ErrBusy is wrapped by the error of Run when another worker has the directory.
var ErrBusy = errors.New("another worker uses the directory")

func (w *Worker) note(format string, args ...any) {
	if w.OnNote != nil {
		w.OnNote(fmt.Sprintf(format, args...))
	}
}

// Run joins a suite, takes tries and runs them until ctx ends; what runs then goes on. When kill ends, what runs is
// cancelled. It returns when nothing runs any more. After a suite it joins the next one. What a dead predecessor left
// in Dir is ended, and removed.
func (w *Worker) Run(ctx, kill context.Context) (err error) {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	lock, err := os.Open(w.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBusy, w.Dir, err)
	}
	if err := w.sweep(kill); err != nil {
		return err
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

// join waits for a suite.
func (w *Worker) join(ctx context.Context) (*Welcome, error) {
	for said := false; ; said = true {
		welcome := &Welcome{}
		err := w.Line.Ask(ctx, w.hello(w.Suite, w.Jobs), welcome)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && welcome.Refused != "":
			return nil, fmt.Errorf("%w: %s", ErrRefused, welcome.Refused)
		case err == nil:
			return welcome, nil
		case !said && !w.Local: // the coordinator of this process answers soon
			w.note("no suite is running: waiting for one")
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinPause):
		}
	}
}

func (w *Worker) hello(suite string, slots int) Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Hello{Suite: suite, Life: w.Life, Version: w.Version, Slots: slots,
		Trying: slices.Sorted(maps.Keys(w.trying))}
}

// serve runs tries of one suite until ctx ends or the suite is over.
func (w *Worker) serve(ctx, kill context.Context, to *Welcome) (err error) {
	if !w.Local {
		w.note("joined the suite %s", to.Name)
	}
	w.Line.Join(to.Suite)
	w.joined, w.trying = to, map[string]*trying{}
	defer func() { err = errors.Join(err, workspace.Remove(w.sentDir())) }()
	here, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	beating, stop := context.WithCancel(context.Background())
	var beats, slots sync.WaitGroup
	beats.Go(func() { w.beat(beating, leave, to) })
	failed := make([]error, w.Jobs)
	for i := range w.Jobs {
		slots.Go(func() {
			if failed[i] = w.slot(here, kill, i); failed[i] != nil {
				leave(failed[i])
			}
		})
	}
	slots.Wait()
	stop()
	beats.Wait()
	if ctx.Err() != nil && !w.Local {
		bye, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = w.Line.Ask(bye, w.hello(to.Suite, 0), &Welcome{}) // it would be missed after a lease, too
	}
	return errors.Join(failed...)
}

// beat says that the tries live, and ends those that are over. It leaves when this suite's coordinator is away and
// another one is there.
func (w *Worker) beat(ctx context.Context, leave context.CancelCauseFunc, to *Welcome) {
	lease := time.Duration(to.LeaseNS)
	tick := time.NewTicker(max(lease/3, time.Millisecond))
	defer tick.Stop()
	for heard := time.Now(); ; {
		answer, other := &Welcome{}, &Welcome{}
		asking, stop := context.WithTimeout(ctx, lease/3) // what is lost on the way is soon followed by another
		err := w.Line.Ask(asking, w.hello(to.Suite, w.Jobs), answer)
		stop()
		switch {
		case err == nil && answer.Refused != "":
			leave(fmt.Errorf("%w: %s", ErrRefused, answer.Refused))
		case err == nil:
			heard = time.Now()
			w.over(answer.Over, errOver)
		case time.Since(heard) > patience*lease:
			w.over(nil, errForgotten)
		case w.Suite == "" && w.Line.Ask(ctx, w.hello("", w.Jobs), other) == nil && other.Suite != to.Suite:
			leave(fmt.Errorf("the suite %s is over", to.Name))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// over ends tries: those with the tokens, or without any those of which nothing runs.
func (w *Worker) over(tokens []string, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token, t := range w.trying {
		if tokens == nil && t.idle || slices.Contains(tokens, token) {
			t.end(why)
			t.forget(why)
		}
	}
}

// localBundle is where a worker of this process leaves the bundle of the try with the token, which the agent must not
// learn.
func localBundle(dir, token string) string { return filepath.Join(dir, "bundle-"+runID(token)) }

func (w *Worker) slotDir(i int) string { return filepath.Join(w.Dir, fmt.Sprintf("slot-%d", i)) }

// sweep removes what a predecessor left. Its runs end by themselves, since nobody holds their lifelines; those that do
// not are killed.
func (w *Worker) sweep(ctx context.Context) error {
	slots, err := filepath.Glob(filepath.Join(w.Dir, "slot-*"))
	if err != nil {
		return err
	}
	for _, dir := range slots {
		if err := w.recover(ctx, dir); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil { // what is left after the power failed need not be whole, and nobody waits for it
			w.note("%v: it is removed", err)
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

// clear removes the directory of a slot. What an agent left there that cannot be removed is moved away, and that is
// said: it must not keep other attempts from their turn.
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
	w.note("what an agent left cannot be removed, and is in %s: %v", aside, err)
	return nil
}

// endTime is how long a run without a lifeline may take to end.
const endTime = 20 * time.Second

// recover seals what an assay-run that died left in a slot. One that still lives is waited for, and then killed.
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
			return fmt.Errorf("recover what a dead worker left in %s: %s", slot, bytes.TrimSpace(out))
		}
		if time.Since(began) > endTime {
			if err := killRecorder(specFile(slot)); err != nil {
				return err
			}
		}
		select { // a run that is alive is ending, since nobody holds its lifeline
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func specFile(slot string) string { return filepath.Join(slot, "spec.json") }

// slot runs one try after the other.
func (w *Worker) slot(ctx, kill context.Context, i int) error {
	for {
		var work Work
		if err := w.Line.Next(ctx, &work); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.one(kill, &work, i)
		if err := w.clear(w.slotDir(i)); err != nil {
			return err
		}
	}
}

// one makes one try and tells of it.
func (w *Worker) one(kill context.Context, work *Work, i int) {
	run, end := context.WithCancelCause(kill)
	defer end(nil)
	tell, forget := context.WithCancelCause(context.WithoutCancel(kill))
	defer forget(nil)
	defer context.AfterFunc(kill, func() { time.AfterFunc(lastWords, func() { forget(context.Cause(kill)) }) })()
	t := &trying{end: end, forget: forget}
	w.mu.Lock()
	w.trying[work.Token] = t
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.trying, work.Token)
		w.mu.Unlock()
	}()
	host := w.host
	host.AgentDigest = w.programs.digest(work.Spec.Command[2])
	err := w.Line.Tell(run, work.Token+".began", Told{Token: work.Token, Life: w.Life, Began: &host})
	var ended *Ended
	if err == nil {
		ended = w.try(run, tell, work, i)
		w.idle(t, true)
		if context.Cause(run) != errOver {
			err = w.Line.Tell(tell, work.Token+".ended", Told{Token: work.Token, Life: w.Life, Ended: ended})
		}
	}
	if context.Cause(tell) == errOver && w.Local {
		_ = os.Remove(localBundle(w.Dir, work.Token)) // nobody fetches it
	}
	if cause := context.Cause(tell); cause != nil {
		w.note("%s, try %d: given up: %v", work.Attempt, work.Try, cause)
	} else if err != nil && kill.Err() == nil {
		w.note("%s, try %d: %v", work.Attempt, work.Try, err)
	}
}

func (w *Worker) idle(t *trying, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.idle = is
}

// try runs assay-run, and hands its bundle over.
func (w *Worker) try(run, tell context.Context, work *Work, i int) *Ended {
	give, err := w.memory.take(run, int64(work.Spec.Limits.Memory))
	if err != nil {
		return &Ended{Class: schema.SuiteWorkerLost, Reason: err.Error()}
	}
	defer give()
	dir := w.slotDir(i)
	if err := w.prepare(run, dir, work, i); err != nil {
		return setupFault(err)
	}
	ended := w.run(run, dir, work)
	if context.Cause(run) == errOver {
		return ended
	}
	return w.hand(tell, dir, work, ended)
}

func setupFault(err error) *Ended {
	return &Ended{Class: faultClass(err.Error(), schema.SuiteSetup), Reason: err.Error()}
}

// prepare makes the slot's directory with the workspace and the files of the try.
func (w *Worker) prepare(ctx context.Context, dir string, work *Work, i int) error {
	if err := errors.Join(workspace.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	copied := filepath.Join(dir, "work")
	err := copyChecked(ctx, work.Workspace, work.WorkspaceDigest, copied)
	if err != nil && !w.Local && work.Workspace != "" && !errors.Is(err, syscall.ENOSPC) {
		err = w.copySent(ctx, work, copied)
	}
	if err != nil {
		return fmt.Errorf("copy the workspace: %w", err)
	}
	s := work.Spec
	s.Workdir = copied
	put := func(name string, data []byte) (string, error) {
		path := filepath.Join(dir, name)
		return path, os.WriteFile(path, data, 0o600)
	}
	prompt, err := put("prompt", []byte(work.Prompt))
	if err != nil {
		return err
	}
	s.Env[EnvPromptFile] = prompt
	for _, c := range []struct {
		Copy
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
	if s.Policy != "" {
		var source []string
		if real, err := filepath.EvalSymlinks(work.Workspace); err == nil && work.Workspace != "" {
			source = []string{real}
		}
		s.Policy, err = confined(s.Policy, slices.Concat([]string{w.ground()}, work.Private, w.Secrets), source,
			[]string{copied, prompt})
		if err != nil {
			return err
		}
	}
	work.Evaluation.Workspace = []string{copied}
	w.reserve(&work.Evaluation, i)
	evaluation, err := EvaluationFile(work.Evaluation)
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

// sentDirName is the directory in a worker's with the workspaces that were fetched, until the suite is over.
const sentDirName = "workspaces"

func (w *Worker) sentDir() string { return filepath.Join(w.Dir, sentDirName) }

// copySent makes the directory to from the workspace as the coordinator sends it, which is kept for other tries. An
// agent may have changed what is kept: then it is fetched again.
func (w *Worker) copySent(ctx context.Context, work *Work, to string) error {
	kept := filepath.Join(w.sentDir(), sentName(work.WorkspaceDigest))
	copyKept := func() error {
		if err := workspace.Remove(to); err != nil {
			return err
		}
		return copyChecked(ctx, filepath.Join(kept, sentTree), work.WorkspaceDigest, to)
	}
	w.fetching.RLock()
	err := copyKept()
	w.fetching.RUnlock()
	if err == nil {
		return nil
	}
	w.fetching.Lock()
	defer w.fetching.Unlock()
	if copyKept() == nil { // another try has fetched it
		return nil
	}
	if err := errors.Join(workspace.Remove(kept), os.MkdirAll(w.sentDir(), 0o700)); err != nil {
		return err
	}
	w.mu.Lock()
	t := w.trying[work.Token]
	w.mu.Unlock()
	w.idle(t, true)
	err = w.fetch(ctx, work, kept)
	w.idle(t, false)
	if err != nil {
		return errors.Join(err, workspace.Remove(kept))
	}
	return copyKept()
}

// fetch asks the coordinator for the try's workspace, and makes the directory to from it.
func (w *Worker) fetch(ctx context.Context, work *Work, to string) error {
	for {
		question, answer := w.hello(w.joined.Suite, w.Jobs), &Welcome{}
		question.Lacks = work.WorkspaceDigest
		if err := w.Line.Ask(ctx, question, answer); err == nil && answer.Unsent != "" {
			return errors.New(answer.Unsent)
		}
		r, in := io.Pipe()
		unpacked := make(chan error, 1)
		go func() {
			err := unpackSent(r, to)
			r.CloseWithError(err)
			unpacked <- err
		}()
		err := w.Line.Workspace(ctx, filepath.Base(to), in)
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
		select { // it is on its way
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(joinPause):
		}
	}
}

// run runs assay-run, which ends when this process dies or kill ends.
func (w *Worker) run(kill context.Context, dir string, work *Work) *Ended {
	r, hold, err := os.Pipe()
	if err != nil {
		return setupFault(err)
	}
	defer hold.Close()
	said := &tail{}
	cmd := exec.Command(w.Program, "run", "--spec", specFile(dir), "--spool-dir",
		filepath.Join(dir, "spool"),
		"-o", filepath.Join(dir, "run.tar.gz"), "--force", "--lifeline", "3")
	cmd.ExtraFiles, cmd.Stderr, cmd.Env = []*os.File{r}, said, environ(work.Env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the suite
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	r.Close()
	if err != nil {
		return setupFault(err)
	}
	stop := context.AfterFunc(kill, func() { hold.Close() })
	err = cmd.Wait()
	stop()
	e := &Ended{Said: said.String()}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal().String()
	} else if cmd.ProcessState != nil {
		e.ExitCode = new(cmd.ProcessState.ExitCode())
	} else {
		return setupFault(err)
	}
	return e
}

// hand hands the bundle over. A run whose recorder died is recovered.
func (w *Worker) hand(ctx context.Context, dir string, work *Work, e *Ended) *Ended {
	if e.Class != "" {
		return e
	}
	bundle := filepath.Join(dir, "run.tar.gz")
	if !regular(bundle) { // assay-run died, or could not replace what the agent put there
		if err := errors.Join(workspace.Remove(bundle), w.recover(ctx, dir)); err != nil {
			e.Said += "\n" + err.Error()
		}
	}
	if !regular(bundle) {
		return e
	}
	if w.Local {
		kept := localBundle(w.Dir, work.Token)
		if err := os.Rename(bundle, kept); err != nil {
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

// send stores a bundle under its run's id, while no other one is stored.
func (w *Worker) send(ctx context.Context, bundle string, work *Work, e *Ended) error {
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
	return w.Line.Store(ctx, e.Bundle, f, e.Size)
}

// ground is the directory that agents have no business in, but for their own workspace: the suite's, or on another
// machine the worker's.
func (w *Worker) ground() string {
	if w.Local {
		return filepath.Dir(filepath.Dir(w.Dir)) // see OwnDir
	}
	return w.Dir
}

// reserve adds to a try's evaluation file what an agent has no business with: to read or write its own evidence and
// contract, and files of other attempts. i is its slot.
func (w *Worker) reserve(e *schema.EvaluationDefinition, i int) {
	slot := literal(w.slotDir(i))
	for _, name := range []string{"evaluation.yaml", "spec.json", "spool/**", "file-*"} {
		e.Hidden = append(e.Hidden, slot+"/"+name)
		e.Protected = append(e.Protected, slot+"/"+name)
	}
	e.Protected = append(e.Protected, slot+"/run.tar.gz*", literal(w.sentDir())+"/**")
	for _, secret := range w.Secrets {
		e.Hidden = append(e.Hidden, literal(secret))
	}
	for other := range w.Jobs {
		if other != i {
			e.Others = append(e.Others, literal(w.slotDir(other))+"/**")
		}
	}
	if w.Local {
		for _, name := range groundFiles {
			e.Others = append(e.Others, literal(w.ground())+"/"+name)
		}
	}
}

// regular reports whether a regular file is at a path.
func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// environ is the environment of a run: PATH, HOME, the locale, and the variables with the names.
func environ(names []string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "PATH" && name != "HOME" && name != "LANG" && name != "LANGUAGE" &&
			!strings.HasPrefix(name, "LC_") &&
			!slices.Contains(names, name)
	})
}

// programs keeps digests of programs, of which some have hundreds of megabytes. It is safe for concurrent use.
type programs struct {
	mu    sync.Mutex
	known map[string]knownProgram // by path
}

type knownProgram struct {
	unix.Stat_t
	digest string
}

// digest is the digest of the program that a command of sh begins with; empty if it is none.
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

// tail keeps the end of what is written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.data), "\uFFFD") }
