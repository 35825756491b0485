package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/v1"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// confinement applies the policy: the sandbox of the command, that of the contract's checks, and the record of what
// they denied.
type confinement struct {
	log      *evidence.Log
	settings sandboxfile.Settings
	file     *policyfile.File
	checked  *policy.Set // for the contract's checks; nil without a policy
	isolate  bool        // PID namespace in every mode
	listened bool        // seccomp notification is the kernel layer
	agent    bool        // the command is set up by a recipe
	exposed  bool        // the command has the runner's terminal
	env      []string
	workdir  func() (string, error)
	hidden   []string                 // directories with evidence
	keys     []string                 // files with model keys
	tests    func() ([]string, error) // directories that only the contract's checks see
	protect  []string
	scratch  []string         // directories for the layer of a private home
	inherit  func(dir string) // has a directory removed if this process dies

	onRealHome func(reason string) // may be nil
	onSearch   func(dir string)    // may be nil

	closed *closedBook // nil: the book is open

	resolved *sandbox.Profile // the settings on this host
	profile  *sandbox.Profile // the same; nil if nothing is restricted
	box      *sandbox.Sandbox // the command's
	layers   []sandbox.Layer
	denials  *denials
	reasons  []schema.Reason

	looked  *startup.Where // where programs outside obey files
	lookFor time.Duration  // how long that is searched; 0: no limit
	obeyed  *startup.Set   // before the command started
	startup *schema.Startup
}

func newConfinement(log *evidence.Log, opt Options, spec *specfile.Spec, outlive func(dir string),
	tests func() ([]string, error),
) *confinement {
	c := &confinement{
		log: log, file: opt.Policy, settings: spec.SandboxSettings(opt.Policy),
		isolate:  spec.Isolate == specfile.IsolatePID,
		listened: spec.Kernel == specfile.KernelNotify, agent: spec.Recipe != nil,
		env: environ(spec), workdir: spec.Dir, hidden: opt.Evidence, inherit: outlive, tests: tests,
		onRealHome: opt.OnRealHome, onSearch: opt.OnSearch,
	}
	if opt.ScratchDir != "" {
		c.scratch = []string{opt.ScratchDir}
	}
	if spec.ClosedBook.Wanted() {
		c.closed = &closedBook{
			try: spec.ClosedBook.Close == schema.BookTried, allow: spec.ClosedBook.Allow, model: spec.Model.On(),
			providers:  spec.Model.On() && spec.DeniesProviderTools(opt.Policy) == "",
			containers: spec.Containers,
		}
	}
	c.exposed = !spec.Capture && slices.ContainsFunc([]*os.File{opt.Stdin, opt.Stdout, opt.Stderr}, stdio.IsTerminal)
	if len(c.hidden) == 0 && opt.ScratchDir != "" {
		c.hidden = []string{opt.ScratchDir}
	}
	c.keys = spec.Model.KeyFiles()
	if spec.Policy != "" {
		if at, err := filepath.Abs(spec.Policy); err == nil {
			c.protect = append(c.protect, at)
		}
	}
	if opt.Policy != nil {
		c.checked = policy.NewSet(opt.Policy)
	}
	c.denials = newDenials(log, opt.OnDenied)
	return c
}

// open resolves the policy on this host, before anything of the run could change the result.
func (c *confinement) open(ctx context.Context) error {
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	hidden, err := c.closed.begin(ctx, c, dir)
	if err != nil {
		return err
	}
	c.hidden = append(c.hidden, hidden...)
	tests, err := c.tests()
	if err != nil {
		return err
	}
	if len(tests) > 0 && c.settings.EffectiveMode() == sandboxfile.Observe {
		return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code:    "tests_visible",
			Message: "nothing was run: mode observe cannot hide the tests in " + tests[0] + " from the command",
			Hint:    "run with --mode workspace-write or read-only, or omit tests and name the directory in hidden",
		}}
	}
	home, _ := os.UserHomeDir()
	defer c.searching(dir)()
	c.profile, err = sandbox.Resolve(&c.settings, sandbox.Context{
		Dir: dir, Home: home, Env: c.env, Evidence: slices.Concat(c.hidden, c.keys), Protect: c.protect,
		Tests:      tests,
		IsolatePID: c.isolate, Listened: c.listened,
		NoTyping: c.exposed && sandbox.CanType(),
	})
	if err != nil {
		hint := "correct the policy; assay-run policy check FILE explains it"
		if unknown := new(sandbox.UserError); errors.As(err, &unknown) {
			hint = "name a user of this host, or give a uid, with --user or in the policy"
		}
		return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code: "policy_unusable", Message: err.Error(), Hint: hint,
		}}
	}
	if len(tests) > 0 {
		c.profile.Insist()
	}
	c.resolved = c.profile
	c.look(ctx, home)
	if err := c.closed.shut(c); err != nil {
		return err
	}
	if !c.profile.Restricted() {
		c.openToAll()
		if !c.profile.NoTyping {
			c.profile = nil
			return nil
		}
		c.profile.OnUnavailable = sandboxfile.Degrade // the user did not ask for it
	}
	c.denials.enforce(c.profile)
	if err := c.document(nil); err != nil {
		return sandboxError("policy_not_recorded", err)
	}
	return nil
}

// reporting is how the agent reports, and whether the kernel observes it.
type reporting interface {
	reach() []string              // the files that the agent reports to
	rules() (schema.Policy, bool) // the gateway's rules in force; false: there is no policy
	observed() bool               // there is a kernel layer
	door() *sandbox.Door          // makes the model gateway reachable; nil: there is none
}

// shape sets the command's environment. at is the session's cgroup2 directory, or empty.
func (c *confinement) shape(cmd *exec.Cmd, at string, w reporting) (err error) {
	if c.profile == nil {
		if c.file != nil {
			cmd.Env = c.settings.Env.Apply(cmd.Env)
		}
		return nil
	}
	c.profile.Reach(w.reach()...)
	door := w.door()
	if door != nil && c.profile.Network.Mode == sandboxfile.NetNone {
		return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code: "no_way_to_model",
			Message: "the command has no network (network.mode none), so it cannot reach the " +
				"model gateway", Hint: "set network.mode to loopback in the policy, or omit --model-gateway",
		}}
	}
	if c.box, err = sandbox.New(c.profile, sandbox.Options{
		Layers: c.scratch, Inherit: c.inherit,
		Decided: c.denials.decided, Needs: c.needs(w.reach()), Cgroup: at, Audit: true, Door: door,
		Blocked: func(b sandbox.Blocked) { c.denials.blocked(b, w.observed()) },
	}); err != nil && !c.profile.Restricted() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "terminal_exposed",
			Message: "the command could type into the terminal that it shared with the runner: " + err.Error(),
			Remedy:  "run without --no-capture",
		})
		c.profile, c.box = nil, nil
		return nil
	} else if none := new(sandbox.HomeError); errors.As(err, &none) {
		return noPrivateHome(none)
	} else if err != nil {
		return sandboxError("sandbox_failed", err)
	}
	if h := c.profile.Home; h != nil && h.State == sandboxfile.HomeReal && h.Reason != "" {
		if c.agent && c.settings.Home == sandboxfile.HomePrivate {
			return noPrivateHome(&sandbox.HomeError{Reason: h.Reason})
		}
		if c.onRealHome != nil {
			c.onRealHome(h.Reason)
		}
	}
	cmd.Env = c.box.Environ(cmd.Env)
	return nil
}

func noPrivateHome(why *sandbox.HomeError) error {
	return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
		Code: "home_not_private", Message: "nothing was run: " + why.Error(), Hint: why.Remedy(),
	}}
}

// home is the command's home directory; nil: nothing restricts the command's files.
func (c *confinement) home() *sandbox.Home {
	if c.profile == nil {
		return nil
	}
	return c.profile.Home
}

// user is the user of the command and the checks; nil is the runner's.
func (c *confinement) user() *sandbox.User {
	if c.profile == nil {
		return nil
	}
	return c.profile.User
}

// checkUser is the user of a contract's checks. as is the user that the command became; nil: it did not change. The
// result nil is the runner's user.
func (c *confinement) checkUser(as *sandbox.User) *sandbox.User {
	if c.resolved == nil { // nothing was run
		return nil
	}
	return c.checkProfile(as).User
}

// checkProfile is the sandbox of checks. They run as the user that the command became: root must not execute what
// that user wrote.
func (c *confinement) checkProfile(as *sandbox.User) *sandbox.Profile {
	if as != nil && !c.resolved.Restricted() {
		return c.resolved.As(as)
	}
	return c.resolved
}

// needs lists the files that the command's user must be able to use: the workspace, the logs and socket for the
// agent's reports, and this program, which agents call.
func (c *confinement) needs(reach []string) []sandbox.Need {
	needs := []sandbox.Need{{Path: c.profile.Dir, Mode: unix.R_OK | unix.X_OK}}
	if c.profile.Mode != sandboxfile.ReadOnly {
		needs[0].Mode |= unix.W_OK
	}
	for _, path := range reach {
		needs = append(needs, sandbox.Need{Path: path, Mode: unix.W_OK})
	}
	if self, err := os.Executable(); err == nil {
		needs = append(needs, sandbox.Need{Path: self, Mode: unix.X_OK})
	}
	return needs
}

// start starts the command, in the sandbox if there is one.
func (c *confinement) start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error) {
	if c.box == nil {
		return cmd, start(cmd)
	}
	if err := c.closed.ready(c.profile.User); err != nil {
		return cmd, err
	}
	inner, err := c.box.Start(cmd, start, detached)
	c.layers = c.box.Layers()
	c.unusable()
	if err != nil && inner != nil && !detached {
		_ = inner.Wait()
	}
	if missing := new(sandbox.LayerError); errors.As(err, &missing) && c.closed.insists() {
		missing.Remedy = strings.TrimSuffix(missing.Remedy, sandbox.OrDegrade) +
			"; or record what was open with --closed-book=try"
	}
	return inner, sandboxFailure(err)
}

// sandboxFailure tells an unavailable layer or port from other reasons why a command did not start.
func sandboxFailure(err error) error {
	if none := new(sandbox.HomeError); errors.As(err, &none) {
		return noPrivateHome(none)
	}
	var missing *sandbox.LayerError
	if errors.As(err, &missing) {
		return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code: "layer_unavailable", Message: "nothing was run: " + err.Error(), Hint: missing.Remedy,
		}}
	}
	var port *sandbox.PortError
	if errors.As(err, &port) {
		return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: schema.ResultError{
			Code: "local_port_unavailable", Message: "nothing was run: " + err.Error(), Hint: port.Remedy(),
		}}
	}
	return err
}

// init returns the command's process id on the host and its state changes, which the init of its PID namespace
// reports. It returns zero and nil without a PID namespace.
func (c *confinement) init() (pid int, changes <-chan unix.WaitStatus) {
	if c.box == nil {
		return 0, nil
	}
	return c.box.PID(), c.box.States()
}

// close ends the sandbox's helpers, and records what was enforced.
func (c *confinement) close(w reporting) error {
	var unclosed error
	if c.box != nil {
		unclosed = c.box.Close()
		c.denials.settle(c.box.Untold())
		c.denials.refused(c.box.Refusals())
	}
	c.compare()
	unclosed = errors.Join(unclosed, c.closed.remove())
	if c.profile == nil {
		return nil
	}
	c.explainLayers()
	if unclosed != nil {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "not_removed", Message: "the sandbox left something behind: " + unclosed.Error(),
			Remedy: "remove it by hand",
		})
	}
	missing := c.denials.close()
	return errors.Join(missing, c.document(w))
}

// checkTool is the tool name for the contract's checks in a policy's rules. Its only parameter is command.
const checkTool = "outcome_check"

// permit returns why the policy does not allow a check, or nil. Only rules that name checkTool apply to checks; the
// others are about the agent's calls.
func (c *confinement) permit(command string) error {
	if c.checked == nil {
		return nil
	}
	params, _ := json.Marshal(map[string]string{"command": command})
	found := c.checked.CheckNamed(&policy.Call{Tool: checkTool, Params: params, Now: c.log.Elapsed()})
	if len(found) == 0 {
		return nil
	}
	v := found[0]
	c.denials.tell(schema.PolicyEvent{
		SourceEventType: checkTool, Source: "policy", Tool: checkTool, Decision: "deny", TNS: c.log.Now(),
		Rule: v.Rule, Operation: sandbox.OpExec, Target: command,
	})
	return fmt.Errorf("the policy denies this check (%s): %s", v.Rule, v.Reason)
}

// group wraps g so that each check starts in a sandbox of its own, with the same profile.
func (c *confinement) group(g contract.Group, as *sandbox.User, help func([]*os.File)) contract.Group {
	p := c.checkProfile(as)
	if !p.Restricted() { // checks have no terminal
		return g
	}
	return &confinedGroup{Group: g, profile: p.ForCheck(), help: help}
}

// strictGroup wraps g so that checks start in a sandbox where the workspace is all they see of the command's files.
func (c *confinement) strictGroup(
	g contract.Group, as *sandbox.User, fresh string, help func([]*os.File),
) contract.Group {
	return &confinedGroup{Group: g, profile: c.checkProfile(as).Strict(fresh), help: help}
}

type confinedGroup struct {
	contract.Group
	profile *sandbox.Profile
	help    func(own []*os.File) // called with what only the sandbox's helper gets
	box     *sandbox.Sandbox
}

func (g *confinedGroup) Start(cmd *exec.Cmd) (err error) {
	if g.box, err = sandbox.New(g.profile, sandbox.Options{EndWithCommand: true}); err != nil {
		return err
	}
	cmd.Env = g.box.Environ(cmd.Env)
	kept := len(cmd.ExtraFiles)
	inner, err := g.box.Start(cmd, func(cmd *exec.Cmd) error {
		g.help(cmd.ExtraFiles[kept:])
		return g.Group.Start(cmd)
	}, false)
	if err != nil {
		g.box.Close()
		if inner != nil {
			_ = inner.Wait()
		}
		return err
	}
	*cmd = *inner
	return nil
}

func (g *confinedGroup) Wait(ctx context.Context) error {
	err := g.Group.Wait(ctx)
	g.box.Close()
	return err
}

// openToAll adds the reason for a command that nothing restricts and that runs as the user who owns the evidence.
func (c *confinement) openToAll() {
	if len(c.hidden) > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "evidence_reachable",
			Message: "the command ran as the user that keeps the evidence, and could reach it",
			Remedy:  "run with --mode workspace-write or read-only",
		})
	}
}

// unusable adds reasons for the needed files that the user cannot use.
func (c *confinement) unusable() {
	for _, u := range c.box.Unusable() {
		r := schema.Reason{Subject: "user", Code: "file_unusable",
			Remedy: "give uid " + strconv.Itoa(c.profile.User.UID) + " access to it, and to the directories above it"}
		why := syscall.Errno(u.Errno)
		switch self, _ := os.Executable(); u.Path {
		case c.profile.Dir:
			r.Code = "workspace_unwritable"
			r.Message = fmt.Sprintf("the command's user cannot write the working directory %s: %v", u.Path, why)
			if c.profile.Mode == sandboxfile.ReadOnly {
				r.Message = fmt.Sprintf("the command's user cannot read the working directory %s: %v", u.Path, why)
			}
		case self:
			r.Code = "program_unusable"
			r.Message = fmt.Sprintf("the command's user cannot execute %s (%v), so its agent cannot report "+
				"tool calls with it", u.Path, why)
		default:
			r.Message = fmt.Sprintf("the command's user cannot write %s (%v), so the bundle lacks what the "+
				"agent reports there", u.Path, why)
		}
		c.reasons = append(c.reasons, r)
	}
}

// effective is the sandbox in policy.json.
type effective struct {
	*sandbox.Profile
	RuleIDs []string        `json:"rule_ids"`
	Layers  []sandbox.Layer `json:"layers"`
}

// document writes policy.json: before the command starts, with w nil, and again when it is known which layers were
// enforced.
func (c *confinement) document(w reporting) error {
	account, err := json.Marshal(effective{c.profile, c.profile.Rules(), c.layers})
	if err != nil {
		return fmt.Errorf("encode policy.json: %w", err)
	}
	file := c.file
	if file == nil {
		file = &policyfile.File{}
	}
	file.Effective = account
	doc, _ := policy.NewSet(file).Document(c.log.RunID)
	if w != nil {
		if now, any := w.rules(); any {
			doc = now // with the rules that clients added
			doc.Sandbox = account
		}
	}
	return c.log.Put(schema.PolicyFilePath, doc)
}

// observeSearch limits the search for what programs obey where nothing is protected: the mode observe promises to
// cost little, whatever the working directory contains.
const observeSearch = 2 * time.Second

// look notes what programs outside obey before the command starts. A profile that protects files has looked for them.
func (c *confinement) look(ctx context.Context, home string) {
	set, where := c.resolved.Obeyed()
	if set == nil {
		where = &startup.Where{Dir: c.resolved.Dir, Home: home}
		ctx, stop := context.WithTimeout(ctx, observeSearch)
		defer stop()
		set = startup.Search(ctx, *where)
		c.lookFor = observeSearch
	}
	c.obeyed, c.looked = set, where
}

// searching tells the user if a search takes long. The result ends that.
func (c *confinement) searching(dir string) (end func()) {
	if c.onSearch == nil {
		return func() {}
	}
	slow := time.AfterFunc(SearchSlow, func() { c.onSearch(dir) })
	return func() { slow.Stop() }
}

// giveBack ends what a closed book kept from the command. It is called when no process of the command is left.
func (c *confinement) giveBack(ctx context.Context) {
	c.reasons = append(c.reasons, c.closed.giveBack(ctx, c)...)
}

// compare notes what programs outside obey since the run. It is called when no process of the command is left.
func (c *confinement) compare() {
	if c.obeyed == nil {
		return
	}
	defer c.searching(c.looked.Dir)()
	ctx := context.Background()
	if c.lookFor > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, 2*c.lookFor)
		defer stop()
	}
	where := *c.looked
	where.Shared = nil
	now := startup.Search(ctx, where)
	c.startup = &schema.Startup{Names: now.Names, Changes: []schema.StartupChange{},
		NotCompared: c.looked.NotCompared()}
	unsearched := now.Unsearched
	if c.obeyed.Cut {
		unsearched = append(slices.Clone(c.obeyed.Unsearched), unsearched...)
	} else {
		changes := now.Since(c.obeyed)
		n := min(len(changes), schema.MaxStartupChanges)
		c.startup.Changes, c.startup.Beyond = append(c.startup.Changes, changes[:n]...), len(changes)-n
	}
	slices.Sort(unsearched)
	unsearched = slices.Compact(unsearched)
	c.startup.Unsearched = unsearched[:min(len(unsearched), schema.MaxStartupChanges)]
	for _, change := range c.startup.Changes {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "startup", Code: "startup_changed", Message: "since the run, " + change.String(),
			Remedy: "read the file before you run git, a shell, an editor or an agent there",
		})
	}
	if len(unsearched) > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "startup", Code: "startup_unsearched",
			Message: fmt.Sprintf("assay-run did not compare what git, shells, editors and agents obey in %s and "+
				"%d other directories: it had no time left, or may not read them", unsearched[0], len(unsearched)-1),
			Remedy: "run in a smaller working directory, or with --mode workspace-write, which has no time limit",
		})
	}
}

// explainLayers adds reasons for layers that were not enforced, and for what was not kept.
func (c *confinement) explainLayers() {
	for _, l := range c.layers {
		if l.State == sandbox.Enforced || l.Layer == sandbox.LayerCgroupBPF && c.enforced(sandbox.LayerNetwork) {
			continue
		}
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "layer_" + l.State,
			Message: fmt.Sprintf("the layer %s is not fully enforced: %s", l.Layer, l.Reason),
			Remedy:  sandbox.Remedy(l),
		})
	}
	if c.box == nil {
		return
	}
	for _, u := range c.box.Uncarried() {
		r := schema.Reason{Subject: "sandbox", Code: "git_config_not_kept"}
		r.Remedy = fmt.Sprintf("change it outside, or add to the policy: filesystem: {allowWrite: [%q]}", u.Path)
		r.Message = fmt.Sprintf("the command changed %s in its copy of %s; assay-run did not keep that",
			strings.Join(u.Keys, ", "), u.Path)
		if u.Err != nil {
			r.Message = fmt.Sprintf("the command changed its copy of %s, which is lost: %v", u.Path, u.Err)
		}
		c.reasons = append(c.reasons, r)
	}
}

// enforced reports whether all these layers are enforced.
func (c *confinement) enforced(names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(c.layers, func(l sandbox.Layer) bool {
			return l.Layer == name && l.State == sandbox.Enforced
		}) {
			return false
		}
	}
	return true
}

// noteNoTyping is the note for a command that has the runner's own terminal.
const noteNoTyping = "terminal_input_refused: the command had the runner's own terminal, and could not put input " +
	"into it (TIOCSTI); without CAP_SYS_ADMIN it could not gain privileges either (no_new_privs)"

// resistance is the tamper_resistance that was in force. Without a sandbox, the command ran as the user who owns the
// evidence.
func (c *confinement) resistance() string {
	switch {
	case c.profile == nil:
	case c.profile.Mode != sandboxfile.Observe &&
		c.enforced(sandbox.LayerNamespaces, sandbox.LayerFiles, sandbox.LayerPrivileges):
		return schema.ResistsSandbox
	case c.profile.User != nil && int(c.profile.User.UID) != os.Getuid() && c.enforced(sandbox.LayerPrivileges):
		return schema.ResistsUser
	}
	return schema.ResistsNone
}

// sealed reports whether the command had a network namespace whose only ways out are assay-run's own.
func (c *confinement) sealed() bool {
	if c.profile == nil {
		return false
	}
	n := c.profile.Network
	return n.Mode == sandboxfile.NetLoopback && len(n.UnixSockets) == 0 && len(n.LocalPorts) == 0 &&
		c.enforced(sandbox.LayerNamespaces, sandbox.LayerNetwork)
}

// confined reports whether the command runs in a sandbox.
func (c *confinement) confined() bool { return c.profile != nil }

func (c *confinement) health(h *schema.ObservationHealth, observed bool) {
	h.TamperResistance = c.resistance()
	if c.profile != nil && c.profile.NoTyping && c.enforced(sandbox.LayerSeccomp) {
		h.Notes = append(h.Notes, noteNoTyping)
	}
	h.Startup = c.startup
	if c.closed != nil {
		h.ClosedBook = c.closed.doc
	}
	h.Reasons = append(h.Reasons, c.reasons...)
	h.Reasons = append(h.Reasons, c.denials.reasons(observed)...)
}

// settledAs waits until the state of a child changes. It returns the child's user if that is not root, which the
// runner is: a command may become another user, as setpriv(1) does. A child that has ended still has its user until
// it is reaped.
func settledAs(pid int) *sandbox.User {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil || os.Geteuid() != 0 {
		return nil
	}
	ids := map[string][]int{}
	for line := range strings.Lines(string(status)) {
		key, rest, _ := strings.Cut(line, ":")
		if key != "Uid" && key != "Gid" && key != "Groups" {
			continue
		}
		for _, f := range strings.Fields(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil
			}
			ids[key] = append(ids[key], n)
		}
	}
	// Compare real, effective, saved and file system ids: a set-uid program has not become another user for good.
	if len(ids["Uid"]) < 2 || len(ids["Gid"]) < 2 || ids["Uid"][0] == 0 || ids["Uid"][1] == 0 {
		return nil
	}
	return sandbox.UserOf(ids["Uid"][1], ids["Gid"][1], ids["Groups"])
}

// maxDenials limits the denial lines in the policy layer. Repeats, and denials beyond the limit, are only counted.
const maxDenials = 10_000

// denials records what the sandbox denied. It is safe for concurrent use: kernel events and the proxy's decisions
// come from different goroutines.
type denials struct {
	log      *evidence.Log
	profile  *sandbox.Profile // nil: the sandbox denies nothing
	onDenied func(what, remedy string)
	bound    []string // paths of sockets that the run bound; used by event alone

	mu       sync.Mutex             // guards what follows
	told     map[string]*toldDenial // by key (see keySeparator)
	refusals map[string]bool        // connection targets that onDenied was called for
	writes   map[string]bool        // programs and directories that onDenied was called for
	// denials of cgroup programs, by call and address; the kernel layer may report them too
	pending map[string]schema.PolicyEvent
	outside map[string]bool // paths of sockets that the command reached, and of which it is not known who bound them
	untold  uint64          // denials of cgroup programs that were not read in time
	unread  uint64          // Landlock refusals without a record from the host's audit
	unsure  bool            // the host's audit lost records, which may have been Landlock refusals
	dropped uint64
	err     error
}

// toldDenial is a denial that is in the policy layer, and how often it happened.
type toldDenial struct {
	schema.PolicyEvent
	times uint64
}

// event turns a kernel event into file_blocked or connect_blocked if it failed and the policy denies it. exe is what
// its process executes.
func (d *denials) event(e *schema.KernelEvent, exe string) {
	if d.profile == nil || !e.HasResult || e.Class == schema.ClassRunner {
		return
	}
	if e.Result >= 0 {
		d.meets(e)
		return
	}
	if rule, denied := d.profile.DeniesCall(cmp.Or(e.Call, e.Kind.String()), e.Args, int(-e.Result)); denied {
		e.RuleID = d.profile.RuleID(rule)
		d.count(schema.PolicyEvent{
			SourceEventType: blockedAs(sandbox.OpCall), Source: "sandbox", ToolCallID: e.ToolCallID, Decision: "deny",
			TNS: e.TNS, Rule: rule, Operation: sandbox.OpCall, Target: cmp.Or(e.Call, e.Kind.String()),
		}, e.Times())
		return
	}
	for _, a := range attempts(e) {
		rule, denied := d.profile.Denies(a)
		if !denied {
			continue
		}
		source := schema.KindFileBlocked
		if a.Op == sandbox.OpConnect || a.Op == sandbox.OpBind {
			source = schema.KindConnectBlocked
		}
		e.RuleID = d.profile.RuleID(rule)
		if convertible(e.Kind) {
			e.Kind = source
		}
		d.tell(schema.PolicyEvent{
			SourceEventType: source.String(), Source: "sandbox", ToolCallID: e.ToolCallID, Decision: "deny",
			TNS: e.TNS, Rule: rule, Operation: a.Op, Target: a.Target,
		})
		if a.Op == sandbox.OpWrite {
			d.tellWrite(exe, a.Target, rule)
		}
		return
	}
}

// meets notes unix sockets that the command bound, and those that it reached and did not bind.
func (d *denials) meets(e *schema.KernelEvent) {
	if e.Kind != schema.KindBind && e.Kind != schema.KindConnect {
		return
	}
	path, is := strings.CutPrefix(e.Value, "unix:")
	if !is || !strings.HasPrefix(path, "/") || len(d.bound) >= maxDenials {
		return
	}
	if e.Kind == schema.KindBind {
		d.bound = append(d.bound, strings.Clone(path))
	} else if d.profile.Shared(path) && !slices.Contains(d.bound, path) {
		d.mu.Lock()
		d.outside[path] = true
		d.mu.Unlock()
	}
}

// tellWrite tells the user of a denied write, once for each program and directory.
func (d *denials) tellWrite(program, target, rule string) {
	remedy := d.profile.AllowingWrite(target, rule)
	key := program + keySeparator + path.Dir(target)
	d.mu.Lock()
	defer d.mu.Unlock()
	if remedy == "" || d.writes[key] || len(d.writes) >= maxDenials {
		return
	}
	d.writes[key] = true
	by := "a program"
	if program != "" {
		by = path.Base(program)
	}
	d.onDenied(fmt.Sprintf("the write of %s to %q", by, target), remedy)
}

// decided records the proxy's decisions. Each becomes a line, also when it allows.
func (d *denials) decided(p sandbox.Decision) {
	decision := "allow"
	if !p.Allowed {
		decision = "deny"
	}
	d.tell(schema.PolicyEvent{
		SourceEventType: "proxy_decision", Source: "sandbox", Decision: decision, TNS: d.log.Now(), Rule: p.Rule,
		Operation: sandbox.OpConnect, Target: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)),
	})
}

// enforce sets the profile whose denials are looked for in events.
func (d *denials) enforce(p *sandbox.Profile) { d.profile = p }

// blocked records denials by cgroup programs. If there is a kernel layer, it sees the same calls and knows the
// process: only what it missed is recorded, at the end.
func (d *denials) blocked(b sandbox.Blocked, observed bool) {
	at, rule := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port()).String(), sandbox.RuleNetworkMode
	if b.Socket != "" {
		at, rule = "unix:"+b.Socket, sandbox.RuleSockets
	}
	e := schema.PolicyEvent{
		SourceEventType: schema.KindConnectBlocked.String(), Source: "sandbox", Decision: "deny",
		TNS: int64(b.Time) - int64(d.log.Start()), Rule: rule, Operation: b.Op, Target: at,
	}
	if !observed {
		d.tell(e)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch _, seen := d.pending[e.Operation+at]; {
	case seen:
	case len(d.pending) < maxDenials:
		d.pending[e.Operation+at] = e
	default:
		d.dropped++
	}
}

// refused adds Landlock's refusals from the host's audit, at the end. The kernel layer has reported most of them
// already.
func (d *denials) refused(list []sandbox.Refusal, lost uint64, unsure bool) {
	d.mu.Lock()
	d.unread, d.unsure = lost, unsure
	seen := map[string]bool{}
	for key := range d.told {
		target := strings.Split(key, keySeparator)[4]
		seen[target] = true
		seen[path.Dir(target)+"/"] = true
	}
	d.mu.Unlock()
	for _, r := range list {
		if seen[r.Target] {
			continue
		}
		rule, denied := d.profile.Denies(r.Attempt)
		if !denied {
			rule = sandbox.RuleMode
		}
		d.tell(schema.PolicyEvent{
			SourceEventType: blockedAs(r.Op), Source: "sandbox", Decision: "deny",
			TNS: int64(r.Time) - int64(d.log.Start()), Rule: rule, Operation: r.Op, Target: r.Target,
		})
	}
}

// settle records the cgroup programs' denials that the kernel layer did not report.
func (d *denials) settle(untold uint64) {
	d.mu.Lock()
	d.untold = untold
	for key := range d.told {
		f := strings.Split(key, keySeparator)
		delete(d.pending, f[2]+f[4])
	}
	rest := slices.SortedFunc(maps.Values(d.pending), func(a, b schema.PolicyEvent) int {
		return cmp.Compare(a.TNS, b.TNS)
	})
	d.mu.Unlock()
	for _, e := range rest {
		d.tell(e)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(d.told)) {
		if t := d.told[key]; t.Operation == sandbox.OpCall && t.times > 1 {
			t.Repeats = t.times - 1
			d.append(t.PolicyEvent)
		}
	}
}

func (d *denials) tell(e schema.PolicyEvent) { d.count(e, 1) }

// count records a denial that happened n times.
func (d *denials) count(e schema.PolicyEvent, n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join([]string{e.SourceEventType, e.Decision, e.Operation, e.Rule, e.Target, e.ToolCallID},
		keySeparator)
	if t, seen := d.told[key]; seen {
		t.times += n
		return
	}
	if len(d.told) >= maxDenials {
		d.dropped++
		return
	}
	d.told[key] = &toldDenial{e, n}
	if e.Decision == "deny" && e.Operation == sandbox.OpConnect && !d.refusals[e.Target] &&
		!strings.HasSuffix(e.Target, nameCache) {
		d.refusals[e.Target] = true
		d.onDenied("the connection to "+e.Target, d.profile.Allowing(e.Target, e.Rule))
	}
	d.append(e)
}

func (d *denials) append(e schema.PolicyEvent) {
	e.Schema, e.RunID = schema.PolicyEventV0, d.log.RunID
	if err := d.log.Append(schema.PolicyPath, func(seq uint64) any {
		e.Seq = seq
		return &e
	}); err != nil && d.err == nil {
		d.err = fmt.Errorf("record a denial: %w", err)
	}
}

func (d *denials) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// reasons say which denials could not be seen, or were not recorded.
func (d *denials) reasons(observed bool) []schema.Reason {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []schema.Reason
	if d.profile == nil {
		return nil
	}
	if !observed {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unobserved",
			Message: "without a kernel layer that has the results of calls, the bundle records only the denials of " +
				"the sandbox's proxy, those of its layers sockets and cgroup_bpf, and Landlock's if the host's " +
				"auditing is on",
			Remedy: "run assay-run doctor, and provide what it says is missing",
		})
	}
	for _, path := range slices.Sorted(maps.Keys(d.outside)) {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "socket_outside",
			Message: fmt.Sprintf("the command connected to the unix socket %q, which no process of the run bound "+
				"under this name: a program outside may have done what it asked", path),
			Remedy: "set filesystem.privateTmp in the policy, or allow the socket with network.allowUnixSockets",
		})
	}
	if d.untold > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_counted",
			Message: fmt.Sprintf("%d denied connections, sends and binds came too fast to record; only this "+
				"number shows them", d.untold),
		})
	}
	if d.unread > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unread",
			Message: fmt.Sprintf("Landlock refused %d accesses for which assay-run got no record from the host's "+
				"audit; only this number shows them", d.unread),
		})
	} else if d.unsure {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unread",
			Message: "the host's audit lost records during the run; the bundle may lack accesses that Landlock refused",
			Remedy:  "raise the audit's limits with auditctl -b and auditctl -r",
		})
	}
	if d.dropped > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_dropped",
			Message: fmt.Sprintf("%d denials after the first %d are not in the policy layer; the kernel layer has them",
				d.dropped, maxDenials),
			Remedy: "read them with assay-run events --layer kernel",
		})
	}
	return list
}

func newDenials(log *evidence.Log, onDenied func(what, remedy string)) *denials {
	if onDenied == nil {
		onDenied = func(string, string) {}
	}
	return &denials{log: log, onDenied: onDenied, told: map[string]*toldDenial{}, refusals: map[string]bool{},
		writes: map[string]bool{}, outside: map[string]bool{},
		pending: map[string]schema.PolicyEvent{}}
}

// convertible reports whether events of this kind say no more than a blocked event does.
func convertible(k schema.KernelKind) bool {
	switch k {
	case schema.KindOpen, schema.KindConnect, schema.KindExecFailed:
		return true
	}
	return false
}

// attempts are the operations that a failed call tried.
func attempts(e *schema.KernelEvent) []sandbox.Attempt {
	errno := int(-e.Result)
	var list []sandbox.Attempt
	add := func(op, target string) {
		if target != "" {
			list = append(list, sandbox.Attempt{Op: op, Target: target, Errno: errno,
				Empty: e.Kind == schema.KindRmdir})
		}
	}
	switch e.Kind {
	case schema.KindExecFailed:
		add(sandbox.OpExec, e.Value)
		return list
	case schema.KindBind:
		add(sandbox.OpBind, e.Value)
		return list
	}
	for name, access := range e.Touches() {
		if access&schema.AccessModify != 0 {
			add(sandbox.OpWrite, name)
		}
		if access&schema.AccessRead != 0 {
			add(sandbox.OpRead, name)
		}
		if access&schema.AccessConnect != 0 {
			add(sandbox.OpConnect, name)
		}
	}
	return list
}

// blockedAs is the event type for a denied operation.
func blockedAs(op string) string {
	switch op {
	case sandbox.OpConnect, sandbox.OpBind:
		return schema.KindConnectBlocked.String()
	case sandbox.OpSignal, sandbox.OpPtrace:
		return "process_blocked"
	case sandbox.OpCall:
		return "call_blocked"
	}
	return schema.KindFileBlocked.String()
}

// nameCache is the end of the path of the socket that the C library tries before it looks up a user or host. A denial
// there has no effect.
const nameCache = "/nscd/socket"

// keySeparator separates the parts of a key in told: event type, decision, operation, rule, target and tool call.
const keySeparator = "\x00"
