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

	"github.com/go-json-experiment/json/v1"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// confinement is what the policy lets the command and the contract's checks
// touch: their sandbox, and the account of what it denied.
type confinement struct {
	log      *evidence.Log
	settings sandbox.Settings
	file     *policy.File
	checked  *policy.Set // for the contract's checks; nil without a policy
	isolate  bool        // a PID namespace in every mode
	exposed  bool        // our own terminal, to the command
	env      []string
	workdir  func() (string, error)
	hidden   []string // directories of evidence
	keys     []string // files with keys of models
	protect  []string

	resolved *sandbox.Profile // what the settings mean here
	profile  *sandbox.Profile // the same, or nil where nothing is restricted
	box      *sandbox.Sandbox // the command's
	layers   []sandbox.Layer
	denials  *denials
	reasons  []schema.Reason
}

func newConfinement(log *evidence.Log, opt Options, spec *Spec) *confinement {
	c := &confinement{
		log: log, file: opt.Policy, settings: spec.sandboxSettings(opt.Policy), isolate: spec.Isolate == IsolatePID,
		env: spec.environ(), workdir: spec.workdir, hidden: opt.Evidence,
	}
	c.exposed = !spec.Capture && slices.ContainsFunc([]*os.File{opt.Stdin, opt.Stdout, opt.Stderr}, stdio.IsTerminal)
	if len(c.hidden) == 0 && opt.ScratchDir != "" {
		c.hidden = []string{opt.ScratchDir}
	}
	c.keys = spec.Model.keyPaths()
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

// open decides what the policy means here, before anything of the run's own
// could change it.
func (c *confinement) open(context.Context) error {
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	home, _ := os.UserHomeDir()
	c.profile, err = c.settings.Resolve(sandbox.Context{
		Dir: dir, Home: home, Env: c.env, Evidence: slices.Concat(c.hidden, c.keys), Protect: c.protect,
		IsolatePID: c.isolate,
		NoTyping:   c.exposed && sandbox.CanType(),
	})
	if err != nil {
		hint := "correct the policy; assay-run policy check FILE explains it"
		if unknown := new(sandbox.UserError); errors.As(err, &unknown) {
			hint = "name a user of this host, or give a uid, with --user or in the policy"
		}
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "policy_unusable", Message: err.Error(), Hint: hint,
		}}
	}
	c.resolved = c.profile
	if !c.profile.Restricted() {
		c.openToAll()
		if !c.profile.NoTyping {
			c.profile = nil
			return nil
		}
		c.profile.OnUnavailable = sandbox.Degrade // nobody asked for it
	}
	c.denials.enforce(c.profile)
	if err := c.document(nil); err != nil {
		return sandboxError("policy_not_recorded", err)
	}
	return nil
}

// reporting is what the agent reports, and what is observed of it.
type reporting interface {
	reach() []string              // the files that the agent reports to
	rules() (schema.Policy, bool) // what is in force in the gateway; false: there is no policy
	observed() bool               // whether there is a kernel layer
	door() *sandbox.Door          // to the model gateway; nil: there is none
}

// shape gives the command its environment. at is the session's cgroup2 directory, or empty.
func (c *confinement) shape(cmd *exec.Cmd, at string, w reporting) (err error) {
	if c.profile == nil {
		if c.file != nil {
			cmd.Env = c.settings.Env.Apply(cmd.Env)
		}
		return nil
	}
	c.profile.Reach(w.reach()...)
	door := w.door()
	if door != nil && c.profile.Network.Mode == sandbox.NetNone {
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "no_way_to_model",
			Message: "the command has no network (network.mode none), so it cannot reach the " +
				"model gateway", Hint: "set network.mode to loopback in the policy, or omit --model-gateway",
		}}
	}
	if c.box, err = sandbox.New(c.profile, sandbox.Options{
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
	} else if err != nil {
		return sandboxError("sandbox_failed", err)
	}
	cmd.Env = c.box.Environ(cmd.Env)
	return nil
}

// user is who the command and the checks run as; nil is the user of the runner.
func (c *confinement) user() *sandbox.User {
	if c.profile == nil {
		return nil
	}
	return c.profile.User
}

// checkUser is who the checks of a contract run as, after a command that became the user as (nil: it became
// nobody else); nil is the user of the runner.
func (c *confinement) checkUser(as *sandbox.User) *sandbox.User {
	if c.resolved == nil { // nothing ran
		return nil
	}
	return c.checkProfile(as).User
}

// checkProfile is what checks run in. They run as who the command became: what that
// user wrote is not for root to execute.
func (c *confinement) checkProfile(as *sandbox.User) *sandbox.Profile {
	if as != nil && !c.resolved.Restricted() {
		return c.resolved.As(as)
	}
	return c.resolved
}

// needs are the files that a command of another user must be able to use: its workspace, the logs and
// socket that the agent reports to, and this program, which agents call.
func (c *confinement) needs(reach []string) []sandbox.Need {
	needs := []sandbox.Need{{Path: c.profile.Dir, Mode: unix.R_OK | unix.X_OK}}
	if c.profile.Mode != sandbox.ReadOnly {
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

// start starts the command, inside where there is an inside.
func (c *confinement) start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error) {
	if c.box == nil {
		return cmd, start(cmd)
	}
	inner, err := c.box.Start(cmd, start, detached)
	c.layers = c.box.Layers()
	c.unusable()
	if err != nil && inner != nil && !detached {
		_ = inner.Wait()
	}
	return inner, confined(err)
}

// confined sorts what the sandbox lacks from other reasons not to start.
func confined(err error) error {
	var missing *sandbox.LayerError
	if errors.As(err, &missing) {
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "layer_unavailable", Message: "nothing was run: " + err.Error(), Hint: missing.Remedy,
		}}
	}
	var port *sandbox.PortError
	if errors.As(err, &port) {
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "local_port_unavailable", Message: "nothing was run: " + err.Error(), Hint: port.Remedy(),
		}}
	}
	return err
}

// init are the process id of the command in the host's numbers, and its changes, where it has a PID namespace:
// its init reports them. Zero and nil: it has none.
func (c *confinement) init() (pid int, changes <-chan unix.WaitStatus) {
	if c.box == nil {
		return 0, nil
	}
	return c.box.PID(), c.box.States()
}

// close ends what serves the command, and writes down what was enforced.
func (c *confinement) close(w reporting) error {
	if c.box != nil {
		c.box.Close()
		c.denials.settle(c.box.Untold())
		c.denials.refused(c.box.Refusals())
	}
	if c.profile == nil {
		return nil
	}
	c.explainLayers()
	missing := c.denials.close()
	return errors.Join(missing, c.document(w))
}

// CheckTool is the tool that a policy's rules for the contract's checks name. Its
// parameter is command.
const CheckTool = "outcome_check"

// permit is nil where the policy lets a check of the contract run. Only rules that name
// CheckTool hold for checks: the others are about what the agent calls.
func (c *confinement) permit(command string) error {
	if c.checked == nil {
		return nil
	}
	params, _ := json.Marshal(map[string]string{"command": command})
	found := c.checked.CheckNamed(&policy.Call{Tool: CheckTool, Params: params, Now: c.log.Elapsed()})
	if len(found) == 0 {
		return nil
	}
	v := found[0]
	c.denials.tell(schema.PolicyEvent{
		SourceEventType: CheckTool, Source: "policy", Tool: CheckTool, Decision: "deny", TNS: c.log.Now(),
		Rule: v.Rule, Operation: sandbox.OpExec, Target: command,
	})
	return fmt.Errorf("the policy denies this check (%s): %s", v.Rule, v.Reason)
}

// group puts the checks that start in g into a sandbox of the same profile, each
// in one of its own.
func (c *confinement) group(g contract.Group, as *sandbox.User) contract.Group {
	p := c.checkProfile(as)
	if !p.Restricted() { // checks have no terminal
		return g
	}
	return &confinedGroup{Group: g, profile: p.ForCheck()}
}

// strictGroup puts the checks that start in g into a sandbox. There they see nothing that the command left
// outside of the workspace.
func (c *confinement) strictGroup(g contract.Group, as *sandbox.User, fresh string) contract.Group {
	return &confinedGroup{Group: g, profile: c.checkProfile(as).Strict(fresh)}
}

type confinedGroup struct {
	contract.Group
	profile *sandbox.Profile
	box     *sandbox.Sandbox
}

func (g *confinedGroup) Start(cmd *exec.Cmd) (err error) {
	if g.box, err = sandbox.New(g.profile, sandbox.Options{EndWithCommand: true}); err != nil {
		return err
	}
	cmd.Env = g.box.Environ(cmd.Env)
	inner, err := g.box.Start(cmd, g.Group.Start, false)
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

// openToAll says that a command which nothing restricts runs as the user whose
// files the evidence is.
func (c *confinement) openToAll() {
	if len(c.hidden) > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "evidence_reachable",
			Message: "the command ran as the user that keeps the evidence, and could reach it",
			Remedy:  "run with --mode workspace-write or read-only",
		})
	}
}

// unusable turns what the user cannot use into reasons.
func (c *confinement) unusable() {
	for _, u := range c.box.Unusable() {
		r := schema.Reason{Subject: "user", Code: "file_unusable",
			Remedy: "give uid " + strconv.Itoa(c.profile.User.UID) + " access to it, and to the directories above it"}
		why := syscall.Errno(u.Errno)
		switch self, _ := os.Executable(); u.Path {
		case c.profile.Dir:
			r.Code = "workspace_unwritable"
			r.Message = fmt.Sprintf("the command's user cannot write the working directory %s: %v", u.Path, why)
			if c.profile.Mode == sandbox.ReadOnly {
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

// effective is policy.json's account of the sandbox.
type effective struct {
	*sandbox.Profile
	RuleIDs []string        `json:"rule_ids"`
	Layers  []sandbox.Layer `json:"layers"`
}

// document writes policy.json: before the command starts, when w is nil, and once more when it
// is known how the layers went.
func (c *confinement) document(w reporting) error {
	account, err := json.Marshal(effective{c.profile, c.profile.Rules(), c.layers})
	if err != nil {
		return fmt.Errorf("encode policy.json: %w", err)
	}
	file := c.file
	if file == nil {
		file = &policy.File{}
	}
	file.Effective = account
	doc, _ := policy.NewSet(file).Document(c.log.RunID)
	if w != nil {
		if now, any := w.rules(); any {
			doc = now // with what clients added
			doc.Sandbox = account
		}
	}
	return c.log.Put(schema.PolicyFilePath, doc)
}

// explainLayers turns the layers' reports and what appeared into reasons.
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
	for _, p := range c.profile.Appeared() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "protected_file_created",
			Message: fmt.Sprintf("the run created %s, which programs outside the sandbox run or read", p.Path),
			Remedy:  "read it before you run them",
		})
	}
}

// enforced reports whether all these layers are.
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

// noteNoTyping says what is refused to a command that has our own terminal.
const noteNoTyping = "terminal_input_refused: the command had the runner's own terminal, and could not put input " +
	"into it (TIOCSTI); without CAP_SYS_ADMIN it could not gain privileges either (no_new_privs)"

// resistance is how far the command was kept from the recorder, by what was really
// in force: without a sandbox it was the user whose files the evidence is.
func (c *confinement) resistance() string {
	switch {
	case c.profile == nil:
	case c.profile.Mode != sandbox.Observe &&
		c.enforced(sandbox.LayerNamespaces, sandbox.LayerFiles, sandbox.LayerPrivileges):
		return schema.ResistsSandbox
	case c.profile.User != nil && int(c.profile.User.UID) != os.Getuid() && c.enforced(sandbox.LayerPrivileges):
		return schema.ResistsUser
	}
	return schema.ResistsNone
}

// sealed reports whether the command had a network of its own, with no way out but the doors of ours.
func (c *confinement) sealed() bool {
	if c.profile == nil {
		return false
	}
	n := c.profile.Network
	return n.Mode == sandbox.NetLoopback && len(n.UnixSockets) == 0 && len(n.LocalPorts) == 0 &&
		c.enforced(sandbox.LayerNamespaces, sandbox.LayerNetwork)
}

// confined reports whether the command starts in a sandbox.
func (c *confinement) confined() bool { return c.profile != nil }

func (c *confinement) health(h *schema.ObservationHealth, observed bool) {
	h.TamperResistance = c.resistance()
	if c.profile != nil && c.profile.NoTyping && c.enforced(sandbox.LayerSeccomp) {
		h.Notes = append(h.Notes, noteNoTyping)
	}
	h.Reasons = append(h.Reasons, c.reasons...)
	h.Reasons = append(h.Reasons, c.denials.reasons(observed)...)
}

// settledAs waits until the state of a child changes, and returns who it runs as if
// that is not the user of the runner, who is root: a command may have become another
// user, as setpriv(1) does. A child that has ended tells until it is reaped.
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
	// Real, effective, saved and file system: a set-uid program is no other user yet.
	if len(ids["Uid"]) < 2 || len(ids["Gid"]) < 2 || ids["Uid"][0] == 0 || ids["Uid"][1] == 0 {
		return nil
	}
	return sandbox.UserOf(ids["Uid"][1], ids["Gid"][1], ids["Groups"])
}

// maxDenials bounds the lines of the policy layer that tell of denials: repeats
// of one are counted, not written, and so are those beyond.
const maxDenials = 10_000

// denials writes down what the sandbox denied. It is safe for concurrent use:
// kernel events and the proxy's decisions come from goroutines of their own.
type denials struct {
	log      *evidence.Log
	profile  *sandbox.Profile // nil: nothing is denied
	onDenied func(target, remedy string)

	mu       sync.Mutex        // guards what follows
	told     map[string]uint64 // how often, by key
	refusals map[string]bool   // targets of connections that onDenied knows
	// of cgroup programs, by call and address; the kernel layer may have them too
	pending  map[string]schema.PolicyEvent
	untold   uint64 // denials of those programs that nobody read
	unread   uint64 // refusals by Landlock without a record from the host's audit
	unsure   bool   // the host's audit lost records, of which some may be such refusals
	repeated uint64
	dropped  uint64
	err      error
}

// event makes a file_blocked or connect_blocked of a kernel event that failed
// where the policy says that it must.
func (d *denials) event(e *schema.KernelEvent) {
	if d.profile == nil || !e.HasResult || e.Result >= 0 || e.Class == schema.ClassRunner {
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
		return
	}
}

// decided records the proxy's decisions: all of them are lines, those that
// allow too.
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

// enforce has the events looked at that a profile denies.
func (d *denials) enforce(p *sandbox.Profile) { d.profile = p }

// blocked records denials by programs on the cgroup. The kernel layer, where
// there is one, sees the same calls and knows whose they are: then only what it
// missed is written, at the end.
func (d *denials) blocked(b sandbox.Blocked, observed bool) {
	at := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port()).String()
	e := schema.PolicyEvent{
		SourceEventType: schema.KindConnectBlocked.String(), Source: "sandbox", Decision: "deny",
		TNS: int64(b.Time) - int64(d.log.Start()), Rule: sandbox.RuleNetworkMode, Operation: b.Op, Target: at,
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

// refused adds at the end what Landlock refused, as the host's audit reports it. The
// kernel layer has already reported most of it.
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

// settle writes what cgroup programs denied and the kernel layer did not tell.
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
}

func (d *denials) tell(e schema.PolicyEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join([]string{e.SourceEventType, e.Decision, e.Operation, e.Rule, e.Target, e.ToolCallID},
		keySeparator)
	if n, seen := d.told[key]; seen {
		d.told[key] = n + 1
		d.repeated++
		return
	}
	if len(d.told) >= maxDenials {
		d.dropped++
		return
	}
	d.told[key] = 1
	if e.Decision == "deny" && e.Operation == sandbox.OpConnect && !d.refusals[e.Target] &&
		!strings.HasSuffix(e.Target, nameCache) {
		d.refusals[e.Target] = true
		d.onDenied(e.Target, d.profile.Allowing(e.Target, e.Rule))
	}
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

// reasons say what of the denials nobody could see, or is not written out.
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
			Message: "without a kernel layer, the bundle records only the denials of the sandbox's proxy, those of " +
				"its layer cgroup_bpf, and Landlock's if the host's auditing is on",
			Remedy: "run assay-run doctor, and provide what it says is missing",
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

func newDenials(log *evidence.Log, onDenied func(target, remedy string)) *denials {
	if onDenied == nil {
		onDenied = func(string, string) {}
	}
	return &denials{log: log, onDenied: onDenied, told: map[string]uint64{}, refusals: map[string]bool{},
		pending: map[string]schema.PolicyEvent{}}
}

// convertible reports whether a kind of event says no more than the blocked ones do.
func convertible(k schema.KernelKind) bool {
	switch k {
	case schema.KindOpen, schema.KindConnect, schema.KindExecFailed:
		return true
	}
	return false
}

// attempts are what a failed call was about.
func attempts(e *schema.KernelEvent) []sandbox.Attempt {
	errno := int(-e.Result)
	var list []sandbox.Attempt
	add := func(op, target string) {
		if target != "" {
			list = append(list, sandbox.Attempt{Op: op, Target: target, Errno: errno})
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

// blockedAs is the type of the event for a denied operation.
func blockedAs(op string) string {
	switch op {
	case sandbox.OpConnect, sandbox.OpBind:
		return schema.KindConnectBlocked.String()
	case sandbox.OpSignal, sandbox.OpPtrace:
		return "process_blocked"
	}
	return schema.KindFileBlocked.String()
}

// nameCache is how the name of the socket ends that the C library asks before it looks
// up any user or host: a denial hinders nobody.
const nameCache = "/nscd/socket"

// keySeparator is between the parts of a key of told: event type, decision,
// operation, rule, target and tool call.
const keySeparator = "\x00"
