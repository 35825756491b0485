package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/checkcache"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// contractPart is the outcome contract of a run. It has three moments: it is read before anything is started,
// it has a baseline before the command, and its checks run after that, while the session and the
// observer still live. close records the verdict, when it is known what the checks were exposed to.
// Without a contract it does nothing.
type contractPart struct {
	log       *evidence.Log
	file      string // empty without a contract
	baseline  bool
	dir       func() (string, error) // the run's working directory
	temp      string
	onSettled func(*schema.Contract) // may be nil
	kernel    watcher

	*checks // the executor of the checks

	gate        *contract.Gate   // nil until it is read
	evaluating  atomic.Bool      // the baseline
	doc         *schema.Contract // nil until it is settled
	interrupted bool             // the evaluation was ended early
	watched     int              // how many processes were alive when it began
	err         error            // the last failure to record contract.json
}

// watcher is who sees what happens while checks run.
type watcher interface {
	// atLarge is how many processes of the agent are alive.
	atLarge() int
	// standing is asked once the observation has ended.
	standing() standing
}

// newContract makes the contract of a run. marked tells the kernel layer which cgroups are checks'.
func newContract(log *evidence.Log, opt Options, spec *Spec, signals *inbox, marked *layer.Checks, room room,
	outlive func(dir string), kernel watcher,
) *contractPart {
	onCheck := opt.OnCheck
	if onCheck == nil {
		onCheck = func(string, bool) {}
	}
	return &contractPart{
		log: log, file: spec.Contract, baseline: spec.ContractBaseline, dir: spec.workdir, temp: opt.ScratchDir,
		onSettled: opt.OnContract, kernel: kernel,
		checks: &checks{
			log: log, env: spec.environ(), signals: signals, grace: spec.Grace, room: room, held: opt.Contained,
			strict: newStrictChecks(spec, outlive), marked: marked, onCheck: onCheck,
		},
	}
}

// read reads the contract, so that a bad one starts nothing.
func (p *contractPart) read(context.Context) error {
	if p.file == "" {
		return nil
	}
	dir, err := p.dir()
	if err == nil {
		p.checks.begin(dir, p.baseline)
		p.gate, err = contract.Open(contract.PrepareOptions{
			Path: p.file, RunID: p.log.RunID, Workdir: dir, TempDir: p.temp, Baseline: p.baseline, Executor: p.checks,
			Options: contract.Options{
				Output:  p.log.Recorder.Create,
				Pieces:  func() *redact.Pieces { return p.log.Redactor.Pieces(schema.ContractPath) },
				Clock:   p.log.Elapsed,
				Started: p.started, Completed: p.completed,
			},
		})
	}
	if err != nil {
		e := schema.ResultError{
			Code: "contract_unusable", Message: err.Error(), Hint: "see assay-run contract validate " + p.file,
		}
		return &runError{source: schema.SourceContract, exit: ExitRunner, ResultError: e}
	}
	p.err = p.log.Put(schema.ContractPath, p.pending())
	return nil
}

// killed is the reason in contract.json of a run that was killed.
const killed = "the runner ended before the contract was evaluated"

func (p *contractPart) pending() *schema.Contract {
	doc := p.gate.Pending(killed)
	doc.StrictChecks = p.strict != nil
	return doc
}

// hear passes a signal on to the check of the baseline that runs. It reports whether one may run.
func (p *contractPart) hear(sig os.Signal) bool {
	if !p.evaluating.Load() {
		return false
	}
	p.signal(sig, nil)
	return true
}

// takeBaseline notes the state of the protected paths and evaluates the baseline. The end of
// ctx ends the evaluation.
func (p *contractPart) takeBaseline(ctx context.Context) error {
	if p.gate == nil {
		return nil
	}
	p.evaluating.Store(p.baseline)
	err := p.gate.Prepare(ctx)
	p.evaluating.Store(false)
	p.checks.baselineEnded()
	if p.baseline && err == nil {
		_ = p.log.Put(schema.ContractPath, p.pending()) // the one before it says no less
	}
	var end *interruption
	switch {
	case err != nil && errors.As(context.Cause(ctx), &end):
		return end.failure("while the contract's baseline was evaluated: " + end.Error())
	case err != nil:
		return &runError{source: schema.SourceContract, exit: ExitRunner,
			ResultError: schema.ResultError{Code: "contract_unusable", Message: err.Error()}}
	}
	return nil
}

// check runs the checks once nothing of the command is left, unless the run was cancelled or processes of it
// survived.
func (p *contractPart) check(ctx context.Context, e ended) {
	if p.gate == nil {
		return
	}
	p.checks.runAs(e.runsAs)
	switch {
	case e.survived != "":
		p.doc, _ = p.gate.Settle(ctx, e.survived)
	case e.outcome == schema.OutcomeCancelled:
		p.doc, _ = p.gate.Settle(ctx, "the run was cancelled")
	default:
		p.watched = p.kernel.atLarge()
		err := p.attended(ctx, func(ctx context.Context) (err error) {
			p.doc, err = p.gate.Settle(ctx, "")
			return err
		})
		p.interrupted = err != nil
	}
}

// close records the verdict. Without one the command never ran.
func (p *contractPart) close(res *schema.Result) error {
	if p.gate == nil {
		return nil
	}
	defer p.gate.Release()
	p.strict.end()
	if p.doc == nil {
		p.doc, _ = p.gate.Settle(context.Background(), "the agent never ran: "+res.Error.Message)
	}
	p.doc.StrictChecks = p.strict != nil
	if u := p.room.checkUser(p.as); u != nil {
		p.doc.ChecksUID = &u.UID
	}
	if p.interrupted && (res.Outcome == schema.OutcomeExited || res.Outcome == schema.OutcomeSignaled) {
		res.Outcome = schema.OutcomeCancelled
	}
	p.weigh(p.kernel.standing())
	p.record(res)
	if p.onSettled != nil {
		p.onSettled(p.doc)
	}
	return p.err
}

// weigh adds to the verdict what the checks were exposed to.
func (p *contractPart) weigh(seen standing) {
	if n := seen.escaped; n > 0 { // what is moved out of the session is not ended with the command
		p.doc.Reasons = append(p.doc.Reasons,
			fmt.Sprintf("tasks were moved out of the run's cgroup (%d): they may have been there while the checks ran",
				n))
	}
	if n := max(p.watched, p.kernel.atLarge()); n > 0 {
		p.doc.Doubt(fmt.Sprintf(
			"processes of the agent (%d) were alive while the checks ran, so that the checks prove nothing", n))
	}
	if seen.tampered != "" {
		p.doc.Doubt("the evidence was tampered with, so no verdict holds: " + seen.tampered)
	}
	if seen.touched != nil {
		seen.touched.tell(p.doc, p.gate.Protects, p.checks.dir, p.strict)
	}
	if p.strict != nil && !seen.complete {
		p.doc.Reasons = append(p.doc.Reasons,
			"the kernel layer is not complete, so a strict check may have read what the command wrote")
	}
}

// record writes contract.json, on a full disk without the ends of the outputs.
// Where even that fails, the one that was written first stands.
func (p *contractPart) record(res *schema.Result) {
	pending := p.err == nil
	res.Contract, res.Checks, res.ContractReasons = &p.doc.Verdict, p.doc.Summaries(), p.doc.Reasons
	if p.err = p.log.Put(schema.ContractPath, p.doc); p.err == nil {
		return
	}
	for _, results := range [][]schema.CheckResult{p.doc.Results, p.doc.Baseline} {
		for i := range results {
			results[i].OutputTail = ""
		}
	}
	if p.log.Put(schema.ContractPath, p.doc) == nil {
		return
	}
	res.Contract, res.Checks, res.ContractReasons = nil, nil, nil
	if pending {
		verdict := schema.VerdictInconclusive
		res.Contract = &verdict
	}
}

// room is where checks run.
type room interface {
	// permit returns why the policy does not let a check run.
	permit(command string) error
	// checkGroup makes a cgroup for a check, and the group to start it through. as is who the command became, and
	// fresh the directory of a strict check.
	checkGroup(ctx context.Context, name string, as *sandbox.User, fresh string) (*cgroup.Group, contract.Group, error)
	// checkUser is who checks run as; nil is the user of the runner.
	checkUser(as *sandbox.User) *sandbox.User
}

// checks runs the checks of a contract, each in a cgroup of its own of the run's session, with the
// agent's environment and under its limits. They do not get the variables that tell an agent where to
// report (its logs, the socket for its tool calls).
type checks struct {
	log     *evidence.Log
	env     []string
	signals *inbox
	grace   time.Duration
	room    room
	held    interface{ kill() } // every process of the run
	strict  *strictChecks       // nil where checks are not strict
	marked  *layer.Checks
	onCheck func(name string, ended bool)
	dir     string
	as      *sandbox.User // who the command became

	mu       sync.Mutex // below: shared with the goroutine that evaluates
	phase    contract.Phase
	group    *cgroup.Group // of the check that runs; nil between checks
	signaled string        // the signal that it was sent
}

// begin sets where checks run, and whether those of the baseline come first.
func (c *checks) begin(dir string, baseline bool) {
	if c.dir, c.phase = dir, contract.Final; baseline {
		c.phase = contract.Baseline
	}
}

func (c *checks) baselineEnded() { c.phase = contract.Final }

// runAs has the checks run as who the command became.
func (c *checks) runAs(as *sandbox.User) { c.as = as }

func (c *checks) started(phase contract.Phase, check contract.Check) {
	c.onCheck(check.Name, false)
	c.log.Event(schema.Event{Type: schema.CheckStarted, Check: check.Name, Phase: string(phase)})
}

func (c *checks) completed(phase contract.Phase, check contract.Check, r schema.CheckResult) {
	c.onCheck(check.Name, true)
	e := schema.Event{Type: schema.CheckCompleted, Check: check.Name, Phase: string(phase), Passed: &r.Passed,
		DurationMS: &r.DurationMS}
	e.ExitCode, e.OutputTail = &schema.Nullable[int]{}, tail(r.OutputTail)
	if r.ExitCode != nil {
		e.ExitCode.Value, e.ExitCode.Valid = *r.ExitCode, true
	}
	if !r.Passed {
		e.Message = contract.Why(r)
	}
	c.log.Event(e)
}

// eventTail is how many bytes of a check's output an event has; contract.json has more.
const eventTail = 1024

func tail(s string) string {
	if len(s) <= eventTail {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-eventTail:], "")
}

// Run runs one check; it implements [contract.Executor]. A check that the policy
// denies, or that a signal of the user's cut off, has not failed: it could not run.
func (c *checks) Run(ctx context.Context, check contract.Check, index int, out io.Writer) (contract.ExitStatus, error) {
	if err := c.room.permit(check.Command); err != nil {
		return contract.ExitStatus{}, err
	}
	env, fresh := c.env, ""
	if c.strict != nil {
		own, err := c.strict.open(check, c.room.checkUser(c.as))
		if err != nil {
			return contract.ExitStatus{}, err
		}
		defer c.strict.close(own.dir)
		if c.phase == contract.Baseline { // nothing of the command's can be in it
			defer c.strict.keep(own)
		}
		env, fresh = own.env, own.dir
	}
	var id uint64
	shell := contract.Shell{Dir: c.dir, Env: env, Group: func(name string) (contract.Group, error) {
		group, through, err := c.room.checkGroup(ctx, name, c.as, fresh)
		if err != nil {
			return nil, err
		}
		id = group.ID()
		c.marked.Begin(id, layer.Check{Name: check.Name, Baseline: c.phase == contract.Baseline})
		c.enter(group)
		return through, nil
	}}
	status, err := shell.Run(ctx, check, index, out)
	c.marked.End(id, uint64(bootTime()))
	if sig := c.leave(); sig != "" && err == nil && (status.Signal != "" || status.Code != 0) {
		return status, fmt.Errorf("interrupted by %s", sig)
	}
	return status, err
}

func (c *checks) enter(group *cgroup.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group, c.signaled = group, ""
}

func (c *checks) leave() (signaled string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group = nil
	return c.signaled
}

// attended runs f, and passes on the signals that come meanwhile. The error is f's, or an
// *interruption that ended it: the end of ctx, the grace after a SIGTERM, or a second SIGINT or
// SIGTERM.
func (c *checks) attended(ctx context.Context, f func(context.Context) error) error {
	done, late := ctx.Done(), c.signals.late()
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- f(inner) }()
	var kill <-chan time.Time
	for {
		select {
		case err := <-ended:
			var end *interruption
			if err != nil && errors.As(context.Cause(inner), &end) {
				return end
			}
			return err
		case <-done:
			done = nil
			c.log.Event(schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
			cancel(&interruption{outcome: schema.OutcomeCancelled})
		case <-late:
			late = nil
			c.log.Event(schema.Event{Type: schema.Cancelled, SignalName: "SIGTERM", Message: "the grace is over"})
			cancel(&interruption{sig: syscall.SIGTERM, outcome: schema.OutcomeCancelled})
		case sig := <-c.signals.C:
			set := !c.signals.by.IsZero()
			c.signal(sig, cancel)
			if !set {
				late = c.signals.late()
			}
		case <-kill: // a check that is frozen while it starts knows no context
			c.held.kill()
			kill = time.After(killInterval)
		}
		if inner.Err() != nil && kill == nil {
			kill = time.After(killInterval)
		}
	}
}

// signal passes on a signal that we got to the check that runs. Signals that
// are an agent's own affair, such as SIGUSR1, come too late for it and mean
// nothing to a check.
func (c *checks) signal(s os.Signal, cancel context.CancelCauseFunc) {
	sig := s.(syscall.Signal)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch sig {
	case syscall.SIGTSTP:
		if c.group != nil {
			_ = c.group.Freeze()
			defer c.group.Thaw()
		}
		stopSelf(false)
		return
	case syscall.SIGINT, syscall.SIGTERM:
		if c.signals.interrupt(sig, c.grace) {
			c.log.Event(schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig),
				Message: "interrupted while checking"})
			cancel(&interruption{sig: sig, outcome: schema.OutcomeCancelled})
			return
		}
	case syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return
	}
	if c.group == nil {
		return
	}
	c.signaled = unix.SignalName(sig)
	_ = c.group.Signal(sig)
	c.log.Event(schema.Event{Type: schema.SignalForwarded, SignalName: c.signaled})
}

// strictChecks gives each check of a contract directories of its own, so that nothing which the
// command left decides its result. They are empty at its start, but for what checks of earlier
// baselines left in their tools' caches.
type strictChecks struct {
	env      []string         // what is clean of the run's environment
	outlive  func(dir string) // removes it if we cannot
	contract string           // the contract's file
	cache    *checkcache.Cache
	root     string // of all checks; empty before the first
}

// strictCheck is what a check has of its own.
type strictCheck struct {
	dir    string
	env    []string
	key    string // of its entry in the cache
	loaded int    // how many files came from there
}

// inherited are the variables of our environment that a strict check gets. Those with
// an underscore at the end stand for all that begin so.
var inherited = []string{"PATH", "LANG", "LANGUAGE", "LC_", "TZ", "USER", "LOGNAME", "SHELL", envRunID}

// newStrictChecks is nil unless the spec asks for strict checks.
func newStrictChecks(spec *Spec, outlive func(dir string)) *strictChecks {
	if !spec.StrictChecks {
		return nil
	}
	file, _ := filepath.Abs(spec.Contract)
	s := &strictChecks{outlive: outlive, contract: file, cache: checkcache.Open()}
	for _, kv := range spec.environ() {
		key, _, _ := strings.Cut(kv, "=")
		_, set := spec.Env[key]
		if set || slices.ContainsFunc(inherited, func(k string) bool {
			return k == key || strings.HasSuffix(k, "_") && strings.HasPrefix(key, k)
		}) {
			s.env = append(s.env, kv)
		}
	}
	return s
}

// cacheDir is the directory of a check in which its tools keep their caches.
const cacheDir = "cache"

// directories are the variables that name one, below that of a check. Tools which
// keep a cache beside the sources are told to keep it there.
var directories = []struct{ variable, dir string }{
	{"HOME", "home"},
	{"XDG_CONFIG_HOME", "config"}, {"XDG_CACHE_HOME", cacheDir}, {"XDG_DATA_HOME", "data"}, {"XDG_STATE_HOME", "state"},
	{"XDG_RUNTIME_DIR", "runtime"},
	{"TMPDIR", "tmp"}, {"TMP", "tmp"}, {"TEMP", "tmp"},
	{"PYTHONPYCACHEPREFIX", "cache/python"}, {"MYPY_CACHE_DIR", "cache/mypy"}, {"RUFF_CACHE_DIR", "cache/ruff"},
	{"npm_config_cache", "cache/npm"},
}

// open makes the directories of a check that runs as u, and the environment that names them.
func (s *strictChecks) open(check contract.Check, u *sandbox.User) (_ strictCheck, err error) {
	dir, env, uid, gid := "", []string(nil), -1, -1
	if u != nil {
		uid, gid = u.UID, u.GID
	}
	if s.root == "" {
		root, err := os.MkdirTemp("", "assay-run-checks-*")
		if err != nil {
			return strictCheck{}, fmt.Errorf("make directories for it: %w", err)
		}
		s.root = root
		s.outlive(filepath.Join(root, "of")) // and then root
		err = errors.Join(os.Mkdir(filepath.Join(root, "of"), 0o711), os.Chmod(root, 0o711))
		if err != nil {
			return strictCheck{}, fmt.Errorf("make directories for it: %w", err)
		}
	}
	if dir, err = os.MkdirTemp(filepath.Join(s.root, "of"), ""); err != nil {
		return strictCheck{}, fmt.Errorf("make directories for it: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return strictCheck{}, fmt.Errorf("make directories for it: %w", err)
	}
	own := map[string]string{}
	for _, d := range directories {
		own[d.variable] = filepath.Join(dir, d.dir)
		if !strings.Contains(d.dir, "/") { // the others are their tools' to make
			err = errors.Join(err, mkdirFor(own[d.variable], uid, gid))
		}
	}
	if err = errors.Join(err, os.Chown(dir, uid, gid)); err != nil {
		return strictCheck{}, fmt.Errorf("make directories for it: %w", err)
	}
	for _, kv := range s.env {
		key, _, _ := strings.Cut(kv, "=")
		if own[key] == "" {
			env = append(env, kv)
		}
	}
	for _, d := range directories {
		env = append(env, d.variable+"="+own[d.variable])
	}
	made := strictCheck{dir: dir, env: env, key: checkcache.Key(s.contract, check.Name, check.Command, uid)}
	made.loaded = s.cache.Load(made.key, filepath.Join(dir, cacheDir), uid, gid)
	return made, nil
}

func mkdirFor(dir string, uid, gid int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return os.Chown(dir, uid, gid)
}

// keep keeps the cache of a check that has ended for the next ones. Without it they are slower.
func (s *strictChecks) keep(own strictCheck) {
	_ = s.cache.Store(own.key, filepath.Join(own.dir, cacheDir), own.loaded, s.outlive)
}

// close removes a check's directory. A tool may have made directories there that
// nobody can write, as Go's module cache has.
func (s *strictChecks) close(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	root.Close()
	_ = os.RemoveAll(dir)
}

// end removes what is left when no check will come.
func (s *strictChecks) end() {
	if s != nil && s.root != "" {
		s.close(s.root)
	}
}

// covers reports whether a strict check saw a directory of its own where path is.
func (s *strictChecks) covers(path, workdir string) bool {
	for _, dir := range sandbox.Temporary {
		if rest, in := strings.CutPrefix(path, dir+"/"); in {
			top, _, _ := strings.Cut(rest, "/")
			return !sandbox.Below(workdir, filepath.Join(dir, top))
		}
	}
	return false
}

// decisive reports whether a kind of influence turns a strict check.
func decisive(kind string) bool {
	return kind == schema.InfluenceConfiguration || kind == schema.InfluenceCache
}

// StrictExecutor runs checks of a contract without a run, as [Spec.StrictChecks] has
// them run. It is not safe for concurrent use.
type StrictExecutor struct {
	dir     string
	session *cgroup.Session
	profile *sandbox.Profile
	away    *sandbox.Away
	checks  *strictChecks
}

// NewStrictExecutor is for checks in the working directory of spec, with its variables
// and groups of session. The guard removes the checks' directories if we are killed. away
// may be nil.
func NewStrictExecutor(spec *Spec, session *cgroup.Session, guard *cgroup.Guard, away *sandbox.Away) (*StrictExecutor,
	error) {
	strict := *spec
	strict.RunID, strict.StrictChecks = session.RunID(), true
	dir, err := strict.workdir()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	settings := strict.sandboxSettings(nil)
	profile, err := settings.Resolve(sandbox.Context{Dir: dir, Home: home, Env: strict.environ()})
	if err != nil {
		return nil, err
	}
	return &StrictExecutor{dir, session, profile, away, newStrictChecks(&strict, guard.Inherit)}, nil
}

// Run implements [contract.Executor].
func (e *StrictExecutor) Run(ctx context.Context, check contract.Check, index int, out io.Writer) (contract.ExitStatus,
	error) {
	own, err := e.checks.open(check, nil)
	if err != nil {
		return contract.ExitStatus{}, err
	}
	defer e.checks.close(own.dir)
	return contract.Shell{Dir: e.dir, Env: own.env, Group: func(name string) (contract.Group, error) {
		group, err := e.session.NewGroup(name)
		if err != nil {
			return nil, err
		}
		profile := e.profile.Strict(own.dir)
		if e.away != nil {
			profile = profile.Away(*e.away)
		}
		return &confinedGroup{Group: group, profile: profile}, nil
	}}.Run(ctx, check, index, out)
}

// Close removes what is left of the checks' directories.
func (e *StrictExecutor) Close() { e.checks.end() }
