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
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// contractPart is the outcome contract of a run. It is read before anything starts. Its baseline is evaluated before
// the command, and its checks run after it, while the session and the observer still exist. close records the
// verdict, when it is known what could have changed the checks' results. Without a contract it does nothing.
type contractPart struct {
	log       *evidence.Log
	file      string               // empty: there is no contract
	loaded    *contractfile.Loaded // of file; nil: read reads it
	baseline  bool
	dir       func() (string, error) // the run's working directory
	temp      string
	onSettled func(*schema.Contract) // may be nil
	kernel    checkWitness
	placed    *evaluationPart

	*checks // runs the checks

	gate        *contract.Gate   // nil until the contract is read
	evaluating  atomic.Bool      // the baseline is being evaluated
	doc         *schema.Contract // nil until there is a verdict
	interrupted bool             // the evaluation was cut short
	watched     int              // processes of the agent that were alive before the checks
	err         error            // the last error of recording contract.json
}

// checkWitness observes what happens while checks run.
type checkWitness interface {
	// atLarge is how many processes of the agent are alive, without those that were kept.
	atLarge(kept map[int]bool) int
	// exposure is called once the observation has ended.
	exposure() exposure
	// help is told which descriptors assay-run's helper gets that starts a check, and the check does not.
	help(own []*os.File)
}

// exposure is what could have changed the results of checks while they ran.
type exposure struct {
	escaped  uint64     // tasks that were moved out of the session
	complete bool       // the kernel layer is
	tampered string     // how the evidence was tampered with; empty: it was not
	touched  *influence // files of the command that checks read
}

// newContract makes the contract of a run. marked gets the cgroups of checks, for the kernel layer.
func newContract(log *evidence.Log, opt Options, spec *specfile.Spec, signals *inbox, marked *layer.Checks,
	in checkEnclosure,
	outlive func(dir string), kernel checkWitness, placed *evaluationPart,
) *contractPart {
	onCheck := opt.OnCheck
	if onCheck == nil {
		onCheck = func(string, bool) {}
	}
	return &contractPart{
		log: log, file: spec.Contract, loaded: opt.Contract, baseline: spec.ContractBaseline,
		dir: spec.Dir, temp: opt.ScratchDir, onSettled: opt.OnContract, kernel: kernel, placed: placed,
		checks: &checks{
			log: log, env: environ(spec), signals: signals, grace: spec.Grace, enclosure: in, held: opt.Contained,
			strict: newStrictChecks(spec, outlive), marked: marked, help: kernel.help, onCheck: onCheck,
		},
	}
}

// read reads the contract before anything starts, so that a run with a bad contract does not start.
func (p *contractPart) read(context.Context) error {
	if p.file == "" {
		return nil
	}
	dir, err := p.dir()
	if err == nil {
		p.checks.begin(dir, p.baseline)
		p.gate, err = contract.Open(contract.PrepareOptions{
			Path: p.file, Read: p.loaded, RunID: p.log.RunID, Workdir: dir, TempDir: p.temp, Baseline: p.baseline,
			Executor: p.checks,
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
		return &runError{source: schema.SourceContract, exit: schema.ExitRunner, ResultError: e}
	}
	p.err = p.log.Put(schema.ContractPath, p.pending())
	return nil
}

// definition is the contract as its author wrote it; zero without one.
func (p *contractPart) definition() schema.ContractDefinition {
	if p.gate == nil {
		return schema.ContractDefinition{}
	}
	return *p.gate.Definition()
}

// reasonKilled is the reason in contract.json if the runner is killed.
const reasonKilled = "the runner ended before the contract was evaluated"

func (p *contractPart) pending() *schema.Contract {
	doc := p.gate.Pending(reasonKilled)
	doc.StrictChecks = p.strict != nil
	return doc
}

// hear passes a signal on to the running check of the baseline. It reports whether the baseline is being evaluated.
func (p *contractPart) hear(sig os.Signal) bool {
	if !p.evaluating.Load() {
		return false
	}
	p.signal(sig, nil)
	return true
}

// takeBaseline records the state of the protected paths and evaluates the baseline. The end of ctx ends the
// evaluation.
func (p *contractPart) takeBaseline(ctx context.Context) error {
	if p.gate == nil {
		return nil
	}
	p.gate.Protect(p.placed.protected())
	p.evaluating.Store(p.baseline)
	err := p.gate.Prepare(ctx)
	p.evaluating.Store(false)
	p.checks.baselineEnded()
	if p.baseline && err == nil {
		_ = p.log.Put(schema.ContractPath, p.pending()) // an error leaves the earlier document, which says as much
	}
	var end *interruption
	switch {
	case err != nil && errors.As(context.Cause(ctx), &end):
		return end.failure("while the contract's baseline was evaluated: " + end.Error())
	case err != nil:
		return &runError{source: schema.SourceContract, exit: schema.ExitRunner,
			ResultError: schema.ResultError{Code: "contract_unusable", Message: err.Error()}}
	}
	return nil
}

// check runs the checks once every process of the command has ended. It does nothing if the run was cancelled or
// processes survived.
func (p *contractPart) check(ctx context.Context, e commandEnd) {
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
		p.watched = p.kernel.atLarge(e.kept)
		err := p.attended(ctx, func(ctx context.Context) (err error) {
			p.doc, err = p.gate.Settle(ctx, "")
			return err
		})
		p.interrupted = err != nil
	}
}

// close records the verdict. Without a verdict the command never ran.
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
	if u := p.enclosure.checkUser(p.as); u != nil {
		p.doc.ChecksUID = &u.UID
	}
	if p.interrupted && (res.Outcome == schema.OutcomeExited || res.Outcome == schema.OutcomeSignaled) {
		res.Outcome = schema.OutcomeCancelled
	}
	p.weigh(p.kernel.exposure())
	p.record(res)
	if p.onSettled != nil {
		p.onSettled(p.doc)
	}
	return p.err
}

// weigh adds to the verdict what could have changed the checks' results.
func (p *contractPart) weigh(seen exposure) {
	if n := seen.escaped; n > 0 { // they may still be alive
		p.doc.Reasons = append(p.doc.Reasons,
			fmt.Sprintf("tasks were moved out of the run's cgroup (%d): they may have been there while the checks ran",
				n))
	}
	if n := max(p.watched, p.kernel.atLarge(nil)); n > 0 {
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

// record writes contract.json. On a full disk it leaves out the ends of the outputs. If even that fails, the first
// contract.json stays.
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

// checkEnclosure is what checks need of the enclosure.
type checkEnclosure interface {
	// permit returns why the policy does not allow a check, or nil.
	permit(command string) error
	// checkGroup makes a cgroup for a check, and the group to start it in. as is the user that the command became,
	// and fresh is the directory of a strict check. help is called with what only assay-run's helper gets.
	checkGroup(ctx context.Context, name string, as *sandbox.User, fresh string, help func([]*os.File)) (
		*cgroup.Group, contract.Group, error)
	// checkUser is the user of the checks; nil is the runner's.
	checkUser(as *sandbox.User) *sandbox.User
	// check returns the environment in which a check reaches the container engine as the command does, until done is
	// called.
	check(ctx context.Context, env []string) (with []string, done func())
}

// checks runs the checks of a contract, each in a cgroup of its own in the run's session, with the agent's
// environment and limits. They do not get the variables that say where to report: the logs, and the socket for tool
// calls.
type checks struct {
	log       *evidence.Log
	env       []string
	signals   *inbox
	grace     time.Duration
	enclosure checkEnclosure
	held      interface{ kill() } // kills every process of the run
	strict    *strictChecks       // nil if checks are not strict
	marked    *layer.Checks
	help      func(own []*os.File)
	onCheck   func(name string, ended bool)
	dir       string
	as        *sandbox.User // the user that the command became

	mu       sync.Mutex // shared with the evaluating goroutine: guards what follows
	phase    contract.Phase
	group    *cgroup.Group // of the running check; nil between checks
	signaled string        // the signal that was sent to it
}

// begin sets the checks' working directory, and whether a baseline comes first.
func (c *checks) begin(dir string, baseline bool) {
	if c.dir, c.phase = dir, contract.Final; baseline {
		c.phase = contract.Baseline
	}
}

func (c *checks) baselineEnded() { c.phase = contract.Final }

// runAs makes checks run as the user that the command became.
func (c *checks) runAs(as *sandbox.User) { c.as = as }

func (c *checks) started(phase contract.Phase, check schema.Check) {
	c.onCheck(check.Name, false)
	c.log.Event(schema.Event{Type: schema.CheckStarted, Check: check.Name, Phase: string(phase)})
}

func (c *checks) completed(phase contract.Phase, check schema.Check, r schema.CheckResult) {
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

// eventTail is how many bytes of a check's output an event has. contract.json has more.
const eventTail = 1024

func tail(s string) string {
	if len(s) <= eventTail {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-eventTail:], "")
}

// Run runs one check; it implements [contract.Executor]. A check that the policy denies, or that a signal of the user
// interrupts, counts as not run rather than failed.
func (c *checks) Run(ctx context.Context, check schema.Check, index int, out io.Writer) (contract.ExitStatus, error) {
	if err := c.enclosure.permit(check.Command); err != nil {
		return contract.ExitStatus{}, err
	}
	env, fresh := c.env, ""
	if c.strict != nil {
		own, err := c.strict.open(check, c.enclosure.checkUser(c.as))
		if err != nil {
			return contract.ExitStatus{}, err
		}
		defer c.strict.close(own.dir)
		if c.phase == contract.Baseline { // the command has not run yet
			defer c.strict.keep(own)
		}
		env, fresh = own.env, own.dir
	} else {
		with, done := c.enclosure.check(ctx, env)
		defer done()
		env = with
	}
	var id uint64
	shell := contract.Shell{Dir: c.dir, Env: env, Group: func(name string) (contract.Group, error) {
		group, through, err := c.enclosure.checkGroup(ctx, name, c.as, fresh, c.help)
		if err != nil {
			return nil, err
		}
		id = group.ID()
		c.marked.Begin(id, layer.Check{Name: check.Name, Baseline: c.phase == contract.Baseline}, uint64(bootTime()))
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

// attended runs f, and passes on signals that arrive meanwhile. It returns f's error, or the *interruption that ended
// f: the end of ctx, the grace after a SIGTERM, or a second SIGINT or SIGTERM.
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
		case <-kill: // a check that is frozen while it starts does not notice the end of the context
			c.held.kill()
			kill = time.After(killInterval)
		}
		if inner.Err() != nil && kill == nil {
			kill = time.After(killInterval)
		}
	}
}

// signal passes a signal on to the running check. Signals with a meaning of the agent's own, such as SIGUSR1, are not
// passed on.
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

// strictChecks gives each check of a contract directories of its own, so that no file which the command left decides
// its result. They are empty at first, except for the caches that checks of earlier baselines left.
type strictChecks struct {
	env      []string         // the run's variables that strict checks keep
	outlive  func(dir string) // removes a directory if the runner is killed
	contract string           // its path
	cache    *checkcache.Cache
	root     string // has the directories of all checks; empty before the first check
}

// strictCheck is what one check has of its own.
type strictCheck struct {
	dir    string
	env    []string
	key    string // of its cache entry
	loaded int    // files that came from the cache
}

// inherited are the variables of the runner's environment that a strict check gets. A name that ends with an
// underscore is a prefix.
var inherited = []string{"PATH", "LANG", "LANGUAGE", "LC_", "TZ", "USER", "LOGNAME", "SHELL", agents.EnvRun}

// newStrictChecks returns nil unless the spec asks for strict checks.
func newStrictChecks(spec *specfile.Spec, outlive func(dir string)) *strictChecks {
	if !spec.StrictChecks {
		return nil
	}
	file, _ := filepath.Abs(spec.Contract)
	s := &strictChecks{outlive: outlive, contract: file, cache: checkcache.Open()}
	for _, kv := range environ(spec) {
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

// cacheDir is the name of the directory for tools' caches.
const cacheDir = "cache"

// checkDirectories are variables that name directories of a check, and their paths below the check's directory.
// They also move caches that tools keep beside the sources.
var checkDirectories = []struct{ variable, dir string }{
	{"HOME", "home"},
	{"XDG_CONFIG_HOME", "config"}, {"XDG_CACHE_HOME", cacheDir}, {"XDG_DATA_HOME", "data"}, {"XDG_STATE_HOME", "state"},
	{"XDG_RUNTIME_DIR", "runtime"},
	{"TMPDIR", "tmp"}, {"TMP", "tmp"}, {"TEMP", "tmp"},
	{"PYTHONPYCACHEPREFIX", "cache/python"}, {"MYPY_CACHE_DIR", "cache/mypy"}, {"RUFF_CACHE_DIR", "cache/ruff"},
	{"npm_config_cache", "cache/npm"},
}

// open makes the directories of a check that runs as u, and returns the environment that names them.
func (s *strictChecks) open(check schema.Check, u *sandbox.User) (_ strictCheck, err error) {
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
		s.outlive(filepath.Join(root, "of")) // removes the directory, then root
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
	for _, d := range checkDirectories {
		own[d.variable] = filepath.Join(dir, d.dir)
		if !strings.Contains(d.dir, "/") { // tools make the others themselves
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
	for _, d := range checkDirectories {
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

// keep saves the cache of a check that has ended for later checks. On failure, they are only slower.
func (s *strictChecks) keep(own strictCheck) {
	_ = s.cache.Store(own.key, filepath.Join(own.dir, cacheDir), own.loaded, s.outlive)
}

// close removes a check's directory. Tools may have made read-only directories there, such as Go's module cache.
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

// end removes what is left when no more checks will run.
func (s *strictChecks) end() {
	if s != nil && s.root != "" {
		s.close(s.root)
	}
}

// covers reports whether a strict check saw its own directory in place of path.
func (s *strictChecks) covers(path, workdir string) bool {
	for _, dir := range sandbox.Temporary {
		if rest, in := strings.CutPrefix(path, dir+"/"); in {
			top, _, _ := strings.Cut(rest, "/")
			return !schema.Below(workdir, filepath.Join(dir, top))
		}
	}
	return false
}

// decisive reports whether a strict check proves nothing after an influence of this kind.
func decisive(kind string) bool {
	return kind == schema.InfluenceConfiguration || kind == schema.InfluenceCache
}

// StrictExecutor runs checks of a contract without a run, as [Spec.StrictChecks] makes a run do it. It is not safe
// for concurrent use.
type StrictExecutor struct {
	dir     string
	session *cgroup.Session
	profile *sandbox.Profile
	away    *sandbox.Away
	checks  *strictChecks
}

// NewStrictExecutor runs checks in the working directory of spec, with its variables, in groups of session. The guard
// removes the checks' directories if this process is killed. away may be nil.
func NewStrictExecutor(spec *specfile.Spec, session *cgroup.Session, guard *cgroup.Guard,
	away *sandbox.Away) (*StrictExecutor,
	error) {
	strict := *spec
	strict.RunID, strict.StrictChecks = session.RunID(), true
	dir, err := strict.Dir()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	settings := strict.SandboxSettings(nil)
	profile, err := sandbox.Resolve(&settings, sandbox.Context{Dir: dir, Home: home, Env: environ(&strict)})
	if err != nil {
		return nil, err
	}
	return &StrictExecutor{dir, session, profile, away, newStrictChecks(&strict, guard.Inherit)}, nil
}

// Run implements [contract.Executor].
func (e *StrictExecutor) Run(ctx context.Context, check schema.Check, index int, out io.Writer) (contract.ExitStatus,
	error) {
	own, err := e.checks.open(check, nil)
	if err != nil {
		return contract.ExitStatus{}, err
	}
	defer e.checks.close(own.dir)
	if e.away != nil && e.away.Home != "" {
		if err := os.CopyFS(filepath.Join(own.dir, "home"), os.DirFS(e.away.Home)); err != nil {
			return contract.ExitStatus{}, err
		}
	}
	return contract.Shell{Dir: e.dir, Env: own.env, Group: func(name string) (contract.Group, error) {
		group, err := e.session.NewGroup(name)
		if err != nil {
			return nil, err
		}
		profile := e.profile.Strict(own.dir)
		if e.away != nil {
			profile = profile.Away(*e.away)
		}
		return &confinedGroup{Group: group, profile: profile, help: func([]*os.File) {}}, nil
	}}.Run(ctx, check, index, out)
}

// Close removes the checks' directories.
func (e *StrictExecutor) Close() { e.checks.end() }
