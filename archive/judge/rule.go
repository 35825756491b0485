package judge

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/evaluation"
	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/facts"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// subject is the bundle that is judged, with the violations that event rules found in it.
type subject struct {
	*view.Bundle
	run   query.Run
	found map[*rule]*Verdict
	facts *facts.Reader // of the kernel layer, as far as it was read
}

// read reads the kernel layer once for all rules about events.
func (s *subject) read(ctx context.Context, rules []*rule) error {
	s.found = map[*rule]*Verdict{}
	processes := slices.ContainsFunc(rules, func(r *rule) bool { return r.processes })
	s.facts = facts.NewReader(!processes)
	var looking, asking []*rule
	var programs []*query.Program
	for _, r := range rules {
		switch {
		case r.program != nil:
			asking, programs = append(asking, r), append(programs, r.program)
		case r.event != nil:
			looking = append(looking, r)
			if r.begin != nil {
				r.begin(s)
			}
		}
		s.found[r] = &Verdict{State: Pass}
	}
	if len(programs)+len(looking) == 0 && !processes {
		return nil
	}
	var table *facts.Table
	if slices.ContainsFunc(programs, (*query.Program).NeedsTable) {
		var err error
		if table, err = view.ReadProcesses(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for e, err := range query.Scan(ctx, s.Bundle, table, programs...) {
		if failed := (*query.EvalError)(nil); errors.As(err, &failed) {
			return fmt.Errorf("%s: rule %s: %w", s.Name, asking[failed.Program].name, err)
		}
		if err != nil {
			return err
		}
		l := s.look(e.Kernel, looking)
		for i, match := range e.Result {
			if match {
				s.found[asking[i]].found(s.evidence(l))
			}
		}
	}
	return nil
}

// look reads the next line for rules about lines.
func (s *subject) look(k *schema.KernelEvent, rules []*rule) *facts.Line {
	l := s.facts.Read(k)
	for _, r := range rules {
		for i := 0; r.amended != nil && i < len(l.Amends); i++ {
			if a := &l.Amends[i]; r.amended(a) {
				s.found[r].found(Evidence{Text: fmt.Sprintf(
					"exec %s by process %d at %.3fs, which the run had made: %s",
					view.Cut(a.Name, 240), a.By.PID, float64(a.TNS)/1e9, s.evidence(l).Text),
					Layer: schema.KernelPath, Line: a.Line + 1})
			}
		}
		if k.Class == schema.ClassRunner || k.Class == schema.ClassCheck {
			continue // caused by the recorder or a check
		}
		if r.event(l) {
			s.found[r].found(s.evidence(l))
		}
	}
	return l
}

// gaps returns the reasons why the bundle supports no conclusions about the subjects.
func (s *subject) gaps(about ...view.Subject) []view.Gap {
	return view.Gaps(s.Verified(), s.Docs, about...)
}

// clean returns the verdict of a rule without violations: pass if the bundle supports that, otherwise unknown.
func (s *subject) clean(v Verdict, good string, about ...view.Subject) Verdict {
	if gaps := s.gaps(about...); len(gaps) > 0 {
		v.unknown(gaps...)
		return v
	}
	v.State, v.Message = Pass, good
	return v
}

// watching makes a rule that fails if breaks is true for any event.
func watching(about view.Subject, good, bad string, breaks func(*facts.Line) bool) *rule {
	r := &rule{event: breaks}
	r.check = func(_ context.Context, s *subject) (Verdict, error) {
		v := *s.found[r]
		if v.State == Fail {
			v.Message = schema.Count(uint64(len(v.Evidence)+v.More), "event", "events") + ": " + bad
			return v, nil
		}
		return s.clean(v, good, about), nil
	}
	return r
}

// harmlessFiles are globs of devices to which programs write without leaving a file.
var harmlessFiles = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/stdout", "/dev/stderr",
	"/dev/pts/*", "/dev/ptmx"}

func (m *maker) onlyWorkspaceWrites(value jsontext.Value) (*rule, error) {
	var also []string
	if m.on(value) != nil {
		var v struct {
			Also []string `json:"also"`
		}
		if err := m.decode(value, &v); err != nil {
			return nil, fmt.Errorf("its value must be true, or also: with a list of globs: %w", err)
		}
		also = v.Also
	}
	var workdir string
	var layer func(path string) bool
	var read *facts.Reader
	breaks := func(l *facts.Line) bool {
		k := l.Event
		if k.Kind == schema.KindMount && l.Outcome != facts.Failed && !facts.Elsewhere(k) {
			return true // files below the mount point may also have names outside the workspace
		}
		if !k.Modifies() || l.Outcome == facts.Failed {
			return false
		}
		if !l.Names.Placed() || facts.Elsewhere(k) {
			return true // the place of the file is not known
		}
		outside := func(p string) bool {
			return strings.HasPrefix(p, "/") && !schema.Below(path.Clean(p), path.Clean(workdir)) &&
				!matches(harmlessFiles, p) && !matches(also, p) && !l.InMemory && !layer(p)
		}
		for i := range l.Acts {
			a := &l.Acts[i]
			if a.How&schema.AccessModify == 0 {
				continue
			}
			if outside(a.Name) {
				return true
			}
			// A file in the workspace may be a hard link to one outside of it.
			if _, lost, _ := read.Beyond(); a.How&(schema.AccessWrite|schema.AccessChange) != 0 &&
				(lost > 0 || a.File != nil && outside(a.File.First)) {
				return true
			}
		}
		return false
	}
	r := watching(view.Files, "only the workspace was written to", "written outside of the workspace", breaks)
	r.begin = func(s *subject) {
		workdir, read, layer = s.Docs.Run.Workdir, s.facts, s.Docs.Policy.Layer()
	}
	return r, nil
}

func (m *maker) onlyHosts(value jsontext.Value) (*rule, error) {
	hosts, err := m.globs(value)
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, h := range hosts {
		if p, err := netip.ParsePrefix(h); err == nil {
			prefixes = append(prefixes, p.Masked())
		}
	}
	allowed := func(name string) bool { return matches(hosts, name) }
	byAddress := func(ap netip.AddrPort, text string) bool {
		addr := ap.Addr().Unmap()
		return allowed(addr.String()) || allowed(text) ||
			slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	open, policy := slices.Contains(hosts, resolvers), slices.Contains(hosts, declaredHosts)
	var domains []string // that the policy declares
	var names hostNames
	var own []netip.Addr // the host's resolvers; nil if the bundle does not name them
	var missing view.Gap // an endpoint that may be allowed, without proof
	r := watching(view.Hosts, "only allowed hosts were contacted", "other hosts were contacted",
		func(l *facts.Line) bool {
			k := l.Event
			if k.Kind == schema.KindDNS {
				if ap, err := netip.ParseAddrPort(k.Remote); err == nil && ap.Port() == dnsPort &&
					(slices.Contains(own, ap.Addr().Unmap()) || byAddress(ap, k.Remote)) {
					names.learn(k)
				}
				return open && asks(k) && !allowed(k.Value) && !matches(domains, k.Value)
			}
			ap, ok := endpointOf(k)
			byPolicy := func(name string) bool { return matches(domains, name) }
			if addr := ap.Addr().Unmap(); policy && ok && (l.Outcome == facts.Failed || k.Blocked() ||
				addr.IsLoopback() || byPolicy(addr.String()) || slices.ContainsFunc(names.of(ap), byPolicy)) {
				return false
			}
			if !ok || byAddress(ap, k.Value) || slices.ContainsFunc(names.of(ap), allowed) {
				return false
			}
			switch {
			case ap.Port() == dnsPort && open && slices.Contains(own, ap.Addr().Unmap()):
				return false
			case ap.Port() == dnsPort && open && own == nil:
				missing.Text = fmt.Sprintf("the bundle does not say whether %s is a resolver of the host's", k.Value)
			case slices.ContainsFunc(k.Names, allowed):
				missing.Text = fmt.Sprintf("only the run itself, or a server that is not the host's resolver, "+
					"says that %s has an allowed name", k.Value)
			default:
				return true
			}
			missing.Remedy = "allow the address"
			return false
		})
	r.begin = func(s *subject) {
		names, own, missing, domains = hostNames{}, nil, view.Gap{}, nil
		if policy {
			domains = s.Docs.Policy.Domains()
		}
		for _, text := range s.Docs.Run.Resolvers {
			if addr, err := netip.ParseAddr(text); err == nil {
				own = append(own, addr.Unmap())
			}
		}
	}
	check := r.check
	r.check = func(ctx context.Context, s *subject) (Verdict, error) {
		v, err := check(ctx, s)
		if err == nil && v.State == Pass && missing.Text != "" {
			v = unknown(missing)
		}
		return v, err
	}
	return r, nil
}

// hostNames are the names of addresses, by the answers of trusted DNS servers.
type hostNames map[netip.Addr][]string

// maxNames limits the addresses with names.
const maxNames = 100_000

func (n hostNames) learn(k *schema.KernelEvent) {
	if k.DNS == nil || !k.DNS.Response {
		return
	}
	for _, a := range k.DNS.Answers {
		addr, err := netip.ParseAddr(a.Data)
		if err != nil || len(n) >= maxNames {
			continue
		}
		for _, name := range []string{k.Value, a.Name} {
			if !slices.Contains(n[addr.Unmap()], name) {
				n[addr.Unmap()] = append(n[addr.Unmap()], strings.Clone(name))
			}
		}
	}
}

func (n hostNames) of(ap netip.AddrPort) []string { return n[ap.Addr().Unmap()] }

// resolvers is the entry of only_hosts that allows queries to the host's DNS servers, for allowed names only, since a
// query can carry data out. declaredHosts is the one that allows loopback addresses and what the policy of the run
// allows; what did not get out then breaks nothing.
const (
	resolvers     = "resolvers"
	declaredHosts = "declared"
	dnsPort       = 53
)

// asks reports whether a DNS event is a query.
func asks(k *schema.KernelEvent) bool {
	return k.Value != "" && (k.DNS == nil || !k.DNS.Response)
}

// endpointOf returns the network peer of an event; ok is false if there is none.
func endpointOf(k *schema.KernelEvent) (ap netip.AddrPort, ok bool) {
	switch k.Kind {
	case schema.KindConnect, schema.KindSendto, schema.KindFlow, schema.KindConnectBlocked, schema.KindAccept,
		schema.KindForeignSocket, schema.KindInherited:
		ap, err := netip.ParseAddrPort(k.Value)
		return ap, err == nil // otherwise it is a unix socket
	}
	return ap, false
}

func (m *maker) onlyPrograms(value jsontext.Value) (*rule, error) {
	programs, err := m.globs(value)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { return strings.Contains(p, "/") })
	var read *facts.Reader
	// A name identifies a program only if the run did not make the file.
	byName := func(name string) bool { return matches(names, path.Base(name)) }
	r := watching(view.Programs, "only allowed programs were executed", "other programs were executed",
		func(l *facts.Line) bool {
			k, other := l.Event, func(name string) bool {
				return !matches(programs, name) && (l.By.Made || read.MayMake() || !byName(name))
			}
			return k.Kind == schema.KindExec && (other(k.Value) || k.Loader != "" && other(k.Loader))
		})
	r.begin = func(s *subject) { read = s.facts }
	r.amended = func(a *facts.Amendment) bool { return !matches(programs, a.Name) && byName(a.Name) }
	return r, nil
}

func (m *maker) noPrivileged(value jsontext.Value) (*rule, error) {
	return watching(view.Privilege, "nothing that needs privilege was done", "privileged system calls succeeded",
		func(l *facts.Line) bool {
			switch l.Event.Kind {
			case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace,
				schema.KindBPF, schema.KindModule, schema.KindChroot, schema.KindLeave:
				return l.Outcome != facts.Failed
			}
			return false
		}), m.on(value)
}

func (m *maker) contractPassed(value jsontext.Value) (*rule, error) {
	return &rule{check: func(_ context.Context, s *subject) (Verdict, error) {
		c := s.Docs.Result.Contract
		switch {
		case c == nil:
			return unknown(view.Gap{Text: "the run had no outcome contract", Remedy: "run it with --contract"}), nil
		case *c == "passed":
			return Verdict{State: Pass, Message: "the outcome contract passed"}, nil
		case *c == "failed":
			return Verdict{State: Fail, Message: "the outcome contract failed",
				Evidence: []Evidence{{Text: "contract " + *c, Layer: schema.ContractPath}}}, nil
		}
		return unknown(view.Gap{Text: "the outcome contract was " + *c + ": its checks could not all be run",
			Remedy: "assay-run inspect says which"}), nil
	}}, m.on(value)
}

// evaluationNotFailed fails if a rule of package evaluation does. A run without an evaluation file passes.
func (m *maker) evaluationNotFailed(value jsontext.Value) (*rule, error) {
	return &rule{check: func(ctx context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass, Message: "the run had no evaluation file"}
		if s.Docs.Evaluation == nil {
			return v, nil
		}
		verdicts, err := (&evaluationRules{}).judge(ctx, s.Bundle)
		if err != nil {
			return v, err
		}
		v.Message = "no rule of the evaluation fails"
		var failed []string
		var gaps []view.Gap
		for _, of := range verdicts {
			if of.State == Unknown {
				gaps = append(gaps, view.Gap{Text: "the evaluation's rule " + of.Rule + " is unknown: " + of.Message})
			}
			if of.State != Fail {
				continue
			}
			failed = append(failed, of.Rule)
			for _, e := range of.Evidence {
				v.found(e)
			}
			v.State = Fail
		}
		switch {
		case v.State == Fail:
			v.Message = "rules of the evaluation fail: " + strings.Join(failed, ", ")
		case len(gaps) > 0:
			v.unknown(gaps...)
		}
		return v, nil
	}}, m.on(value)
}

func (m *maker) closedBook(value jsontext.Value) (*rule, error) {
	var book *schema.ClosedBook
	outside := []string{"mode", "containers", "network"} // codes of reasons for a network without bounds
	r := &rule{begin: func(s *subject) { book = s.Docs.Health.ClosedBook }}
	r.event = func(l *facts.Line) bool { // shows that the run used a way
		if book == nil || l.Outcome == facts.Failed || l.Event.Blocked() {
			return false
		}
		ap, ok := endpointOf(l.Event)
		return slices.ContainsFunc(book.Reasons, func(r schema.BookReason) bool {
			return ok && !ap.Addr().Unmap().IsLoopback() && slices.Contains(outside, r.Code) ||
				r.Host != "" && l.Event.Kind == schema.KindConnect && l.Event.Value == r.Host
		})
	}
	r.check = func(ctx context.Context, s *subject) (Verdict, error) {
		b := s.Docs.Health.ClosedBook
		if b == nil {
			return unknown(view.Gap{Text: "the run was recorded without --closed-book",
				Remedy: "record with --closed-book"}), nil
		}
		v := Verdict{State: Pass, Message: "the book was closed: " + strings.Join(b.Covers, ", ")}
		if b.State == schema.BookClosed {
			return v, nil
		}
		for _, r := range b.Reasons {
			v.found(Evidence{Text: r.Message, Layer: schema.HealthPath})
		}
		for it, err := range s.Items(ctx, schema.PolicyPath, schema.ModelPath) {
			if err != nil {
				return v, err
			}
			for _, r := range b.Reasons {
				if text := shows(&r, it); text != "" {
					v.found(Evidence{Text: text, Layer: it.Path, Line: uint64(it.Number)})
				}
			}
		}
		for _, e := range s.found[r].Evidence {
			v.found(e)
		}
		v.More += s.found[r].More
		v.State, v.Message = Fail, "the book was open"
		return v, nil
	}
	return r, m.on(value)
}

// shows says how a line of the policy layer or the model layer shows that the run used what left its book open, or
// returns "".
func shows(r *schema.BookReason, it *archive.Item) string {
	switch {
	case it.Policy != nil && it.Policy.SourceEventType == "proxy_decision" && it.Policy.Decision == "allow":
		host, port, _ := net.SplitHostPort(it.Policy.Target)
		n, _ := strconv.Atoi(port)
		if d, err := sandboxfile.ParseDomain(r.Host, false); err == nil && d.Match(host, n) {
			return "connected to " + it.Policy.Target
		}
	case it.Model != nil && r.Code == "provider_tools" && len(it.Model.Fetches) > 0 && it.Model.Refused == nil:
		return "the provider of the model was to search or fetch"
	}
	return ""
}

func (m *maker) noNewStartup(value jsontext.Value) (*rule, error) {
	return &rule{check: func(_ context.Context, s *subject) (Verdict, error) {
		st := s.Docs.Health.Startup
		if st == nil {
			return unknown(view.Gap{Text: "the bundle does not say what programs obey after the run",
				Remedy: "record with this version of assay-run"}), nil
		}
		v := Verdict{State: Pass, Message: "git, shells, editors and agents obey nothing new"}
		for _, dir := range st.NotCompared {
			v.Message += fmt.Sprintf("; below %q, nothing was compared", dir)
		}
		for _, c := range st.Changes {
			v.found(Evidence{Text: c.String(), Layer: schema.HealthPath})
		}
		v.More += st.Beyond
		switch {
		case v.State == Fail:
			v.Message = "programs obey something new when they start: " +
				schema.Count(uint64(len(st.Changes)+st.Beyond), "change", "changes")
		case len(st.Unsearched) > 0:
			return unknown(view.Gap{Text: fmt.Sprintf("%q and %d other directories were not searched", st.Unsearched[0],
				len(st.Unsearched)-1), Remedy: "run with --mode workspace-write, or in a smaller directory"}), nil
		}
		return v, nil
	}}, m.on(value)
}

func (m *maker) noUndeclaredActions(value jsontext.Value) (*rule, error) {
	if m.on(value) != nil && value.Kind() == '{' {
		return declaredActions(m, value)
	}
	return &rule{check: func(_ context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		for _, u := range s.Docs.Correlation.ObservedNotReported {
			if u.Code == "edge" || u.Code == "overlap" { // belongs to some reported call
				continue
			}
			for verb, list := range map[string][]string{"wrote": u.Written, "contacted": u.Hosts, "ran": u.Commands} {
				for _, what := range list {
					v.found(Evidence{Text: strings.TrimSpace(fmt.Sprintf("%s %s: %s %s", u.Code,
						strings.Join(u.ToolCallIDs, " "), verb, what)), Layer: schema.CorrelationPath})
				}
			}
		}
		slices.SortFunc(v.Evidence, func(a, b Evidence) int { return strings.Compare(a.Text, b.Text) })
		if v.State == Fail {
			v.Message = schema.Count(uint64(len(v.Evidence)+v.More), "action was", "actions were") +
				" not part of what was reported"
			return v, nil
		}
		return s.clean(v, "everything that was done was part of what was reported", view.Programs, view.Files,
			view.Hosts, view.Calls), nil
	}}, m.on(value)
}

func (m *maker) noNewCapability(value jsontext.Value) (*rule, error) {
	var base string
	if err := m.decode(value, &base); err != nil || base == "" {
		return nil, fmt.Errorf("its value must be the path of a bundle")
	}
	if !filepath.IsAbs(base) {
		base = filepath.Join(m.dir, base)
	}
	set, err := view.Open(m.ctx, []string{base}, view.Options{})
	if err != nil {
		return nil, err
	}
	m.rules.bases = append(m.rules.bases, set)
	from := set.Bundles[0]
	return &rule{check: func(_ context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		c := capabilityOf(from.Docs, s.Docs)
		for _, list := range []struct {
			what string
			sets Sets
		}{
			{"file", c.Surface.FilesystemPaths}, {"host", c.Surface.NetworkEndpoints},
			{"program", c.Surface.ProcessExecs},
			{"tool", c.Surface.MCPTools}, {"decision", c.Surface.PolicyDecisions},
		} {
			for _, added := range list.sets.Added {
				v.found(Evidence{Text: list.what + " " + added, Layer: schema.SurfacePath})
			}
		}
		all := []view.Subject{view.Programs, view.Files, view.Hosts}
		if v.State == Fail {
			v.Message = schema.Count(uint64(len(v.Evidence)+v.More), "capability is", "capabilities are") + " new"
			// If the base may have done the same unobserved, the capability is not certainly new.
			if gaps := (&subject{Bundle: from}).gaps(all...); len(gaps) > 0 {
				what := v.Message
				v.unknown(gaps...)
				v.Message = what + ", or the base did the same unseen: " + v.Message
			}
			return v, nil
		}
		return s.clean(v, "no capability is new", all...), nil
	}}, nil
}

// BuiltinCI stands in place of a rule file's name for rules about a run in CI.
const BuiltinCI = "builtin:ci"

//go:embed ci.yaml
var rulesOfCI []byte

// Limits of a rule file: number of rules, and size in bytes.
const (
	maxRules = 200
	maxFile  = 1 << 20
)

// Rules are the rules of a rule file, or those of [EvaluationRules].
type Rules struct {
	list    []*rule
	allowed map[string]bool // rules, and calls behind callPrefix
	bases   []*view.Set
	// evaluation are the rules of BuiltinEvaluation, or nil.
	evaluation *evaluationRules
}

// callPrefix begins an entry of allow_unknown that names a call.
const callPrefix = "call "

// allow reports whether a rule may be unknown: it is named, or each reason is a call that is named, with its operation
// or for all operations.
func (r *Rules) allow(rule string, calls []string) bool {
	return r.allowed[rule] || len(calls) > 0 && !slices.ContainsFunc(calls, func(call string) bool {
		name, _, _ := strings.Cut(call, " ")
		return call == "" || !r.allowed[callPrefix+call] && !r.allowed[callPrefix+name]
	})
}

// Reading returns the options with which to open bundles for these rules.
func (r *Rules) Reading() (opt view.Options) {
	if r.evaluation == nil {
		return opt
	}
	opt.Without = []string{schema.SurfacePath}
	if r.evaluation.file == nil {
		opt.Follow = evaluation.Follow(nil)
	} else {
		opt.Follow = evaluation.Follow(&r.evaluation.file.Evaluation)
	}
	return opt
}

// Close closes the bundles that rules compare with.
func (r *Rules) Close() {
	for _, s := range r.bases {
		s.Close()
	}
}

// rule is one compiled rule.
type rule struct {
	name string
	// check gives the verdict, after all events.
	check func(context.Context, *subject) (Verdict, error)
	// event, if set, gets each kernel event, and reports whether it breaks the rule. begin, if set, is called before
	// the first.
	event func(*facts.Line) bool
	// amended reports whether an earlier line breaks the rule by what a later one shows of it. It may be nil.
	amended func(*facts.Amendment) bool
	begin   func(*subject)
	// program, if set, is applied to each kernel event. Its matches go to subject.found.
	program *query.Program
	// processes is true if the rule needs all processes, also those that ended long ago.
	processes bool
}

var errRules = errors.New("bad rules")

// file is a rule file.
type file struct {
	Rules        []map[string]jsontext.Value `json:"rules"`
	AllowUnknown []string                    `json:"allow_unknown"`
}

// LoadRules reads a rule file. Paths in it are relative to its directory. Bundles that it names must verify.
func LoadRules(ctx context.Context, path string) (*Rules, error) {
	if path == BuiltinCI {
		return ParseRules(ctx, rulesOfCI, "")
	}
	data, err := config.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRules, err)
	}
	r, err := ParseRules(ctx, data, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errRules, path, err)
	}
	return r, nil
}

// ParseRules reads the text of a rule file whose paths are relative to dir.
func ParseRules(ctx context.Context, data []byte, dir string) (_ *Rules, err error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	var f file
	doc, err := config.DecodeDocument(data, config.FormatOf("", data), &f)
	if err != nil {
		return nil, err
	}
	if len(f.Rules) == 0 {
		return nil, errors.New(`it has no "rules", and would pass everything`)
	}
	if len(f.Rules) > maxRules {
		return nil, fmt.Errorf("%d rules, at most %d are allowed", len(f.Rules), maxRules)
	}
	r := &Rules{allowed: map[string]bool{}}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, item := range f.Rules {
		at := []string{"rules", strconv.Itoa(i)}
		if len(item) != 1 {
			return nil, doc.Fault(fmt.Sprintf(`it has %d keys, want one: a rule is "name: value"`, len(item)), at...)
		}
		for kind, value := range item {
			at = append(at, kind)
			make, ok := kinds[kind]
			if !ok {
				return nil, doc.Fault(fmt.Sprintf("%q is not a rule%s", kind,
					config.Allowed(kind, slices.Sorted(maps.Keys(kinds)))), at...)
			}
			one, err := make(&maker{ctx: ctx, rules: r, dir: dir, doc: doc, path: at}, value)
			if fault := (*config.Error)(nil); errors.As(err, &fault) {
				return nil, err // it says where
			} else if err != nil {
				return nil, doc.Fault(err.Error(), at...)
			}
			if one.name == "" {
				one.name = kind
			}
			if slices.ContainsFunc(r.list, func(o *rule) bool { return o.name == one.name }) {
				return nil, doc.Fault(fmt.Sprintf("the name %q is used twice; give an expr rule a name of its own",
					one.name), at...)
			}
			r.list = append(r.list, one)
		}
	}
	for i, name := range f.AllowUnknown {
		if !slices.ContainsFunc(r.list, func(o *rule) bool { return o.name == name }) &&
			!strings.HasPrefix(name, callPrefix) {
			return nil, doc.Fault(fmt.Sprintf(`%q is not one of the rules, nor "call NAME [OPERATION]"`, name),
				"allow_unknown", strconv.Itoa(i))
		}
		r.allowed[name] = true
	}
	return r, nil
}

// maker makes one rule.
type maker struct {
	ctx   context.Context
	rules *Rules
	dir   string
	doc   *config.Document
	path  []string // of the rule's value in doc
}

// decode decodes the rule's value.
func (m *maker) decode(value jsontext.Value, into any) error {
	return m.doc.DecodeValue(value, into, m.path...)
}

// kinds makes the rules, by name.
var kinds map[string]func(*maker, jsontext.Value) (*rule, error)

func init() {
	kinds = map[string]func(*maker, jsontext.Value) (*rule, error){
		"expr":                      (*maker).expr,
		"only_workspace_writes":     (*maker).onlyWorkspaceWrites,
		"only_hosts":                (*maker).onlyHosts,
		"only_programs":             (*maker).onlyPrograms,
		"no_privileged":             (*maker).noPrivileged,
		"contract_passed":           (*maker).contractPassed,
		"no_new_startup":            (*maker).noNewStartup,
		"closed_book":               (*maker).closedBook,
		"evaluation_not_failed":     (*maker).evaluationNotFailed,
		"no_undeclared_actions":     (*maker).noUndeclaredActions,
		"no_new_capability_against": (*maker).noNewCapability,
	}
}

// on checks the value of a rule without options: none, or true.
func (m *maker) on(value jsontext.Value) error {
	var v *bool
	if err := m.decode(value, &v); err != nil || v != nil && !*v {
		return errors.New("its value must be true; omit the rule to switch it off")
	}
	return nil
}

// globs reads a list of globs.
func (m *maker) globs(value jsontext.Value) ([]string, error) {
	var list []string
	if err := m.decode(value, &list); err != nil {
		return nil, errors.New("its value must be a list of strings, as in [a, b]")
	}
	for _, g := range list {
		if err := config.CheckGlob(g); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// matches reports whether any of the globs matches s.
func matches(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, _ := doublestar.Match(g, s) // the globs are valid
		return ok
	})
}

// exprRule is the value of an expr rule, if that is not just an expression about the run. One of Never, Always and
// Some is an expression about each thing of the kind Of.
type exprRule struct {
	Name   string `json:"name"`
	Of     string `json:"of"`
	Never  string `json:"never"`
	Always string `json:"always"`
	Some   string `json:"some"`
}

func (m *maker) expr(value jsontext.Value) (*rule, error) {
	var text string
	if value.Kind() == '"' && m.decode(value, &text) == nil {
		return m.compile(exprRule{Of: string(query.Runs), Always: text})
	}
	var e exprRule
	if err := m.decode(value, &e); err != nil {
		return nil, fmt.Errorf("its value must be an expression, or have the keys name, of, and one of never, "+
			"always and some: %w", err)
	}
	return m.compile(e)
}

// needs are the subjects that a bundle must show completely, by what the expression is about.
var needs = map[query.Subject][]view.Subject{
	query.Events:    {view.Programs, view.Files, view.Hosts, view.Privilege},
	query.Processes: {view.Processes},
	query.Calls:     {view.Calls},
	query.Turns:     {view.Calls},
}

// acts are the variables of events that describe any kind of action.
var acts = []string{"kind", "value", "result", "errno", "flags", "mode", "count", "bytes_out", "bytes_in", "protocol",
	"call", "seq", "t"}

// varNeeds narrows needs by the variables that an expression about events or runs uses.
var varNeeds = map[string]view.Subject{
	"path": view.Files, "target": view.Files, "writes": view.Files, "files": view.Files,
	"host": view.Hosts, "endpoint": view.Hosts, "address": view.Hosts, "port": view.Hosts, "names": view.Hosts,
	"hosts": view.Hosts,
	"exe":   view.Processes, "argv": view.Processes, "command": view.Processes, "programs": view.Programs,
	"tool_call": view.Calls, "bound_by": view.Calls, "tools": view.Calls, "decisions": view.Calls, "calls": view.Calls,
	"model.requests": view.Models, "model.refused": view.Models, "model.proposed_not_called": view.Models,
	"model.called_not_proposed": view.Models, "model.arguments_differ": view.Models,
	"model.input_tokens": view.Tokens, "model.cache_read_tokens": view.Tokens,
	"model.cache_creation_tokens": view.Tokens,
	"model.output_tokens":         view.Tokens, "model.reasoning_tokens": view.Tokens,
	"model.usage_unknown": view.Models,
	"model.cost":          view.Cost, "model.cost_unknown": view.Models,
	"model.path": view.ModelPath, "model.bypasses": view.ModelPath,
}

func (m *maker) compile(e exprRule) (*rule, error) {
	want, text := "", ""
	for _, q := range []struct{ word, text string }{{"never", e.Never}, {"always", e.Always}, {"some", e.Some}} {
		if q.text == "" {
			continue
		}
		if want != "" {
			return nil, fmt.Errorf("it has both %q and %q, want one", want, q.word)
		}
		want, text = q.word, q.text
	}
	if want == "" {
		return nil, errors.New(`one of "never", "always" and "some" is missing`)
	}
	of := query.Subject(cmp.Or(e.Of, string(query.Events)))
	if !slices.Contains(query.Subjects, of) {
		return nil, fmt.Errorf("of is %q, want one of %v", e.Of, query.Subjects)
	}
	p, err := query.Compile(of, text)
	if err != nil {
		return nil, err
	}
	if p.Constant() {
		return nil, fmt.Errorf("%q names no variable, so it says the same of every bundle", text)
	}
	need := subjectsOf(of, p)
	if want == "always" {
		p = p.Not()
	}
	r := &rule{name: cmp.Or(e.Name, "expr: "+text)}
	if of == query.Events {
		r.program = p
	}
	r.processes = of == query.Processes
	r.check = func(ctx context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		var found int
		var err error
		if of == query.Events {
			v = *s.found[r]
			found = len(v.Evidence) + v.More
		} else {
			found, err = s.find(ctx, of, p, func(e Evidence) { v.found(e) })
		}
		if err != nil {
			return v, err
		}
		switch {
		case want == "some" && found > 0:
			return Verdict{State: Pass, Message: fmt.Sprintf("%d %s match", found, of)}, nil
		case want == "some":
			v = Verdict{State: Fail, Message: fmt.Sprintf("none of the %s matches", of)}
			if gaps := s.gaps(need...); len(gaps) > 0 {
				v.unknown(gaps...)
			}
			return v, nil
		case of == query.Runs && v.State == Fail:
			v.Message = "the expression is false for the run"
			v.Evidence = nil
			if gaps := s.gaps(need...); len(gaps) > 0 {
				v.unknown(gaps...)
			}
			return v, nil
		case v.State == Fail:
			v.Message = fmt.Sprintf("%d %s break the rule", found, of)
			return v, nil
		}
		return s.clean(v, "nothing breaks the rule", need...), nil
	}
	return r, nil
}

// subjectsOf returns the subjects that an expression's answer depends on.
func subjectsOf(of query.Subject, p *query.Program) []view.Subject {
	var need []view.Subject
	for name, about := range varNeeds {
		if p.Uses(name) && !slices.Contains(need, about) {
			need = append(need, about)
		}
	}
	if len(need) == 0 && of != query.Runs || of != query.Events && of != query.Runs {
		return needs[of]
	}
	// Variables of the process do not say which kind of action it was, unless it was an exec.
	if of == query.Events && !slices.Contains(need, view.Files) && !slices.Contains(need, view.Hosts) &&
		p.Uses(acts...) && !p.OnlyOf(schema.KindExec) {
		for _, about := range needs[of] {
			if !slices.Contains(need, about) {
				need = append(need, about)
			}
		}
	}
	slices.Sort(need)
	return need
}

// find calls found for each process, call, turn or run for which the expression is true, and returns their number.
func (s *subject) find(ctx context.Context, of query.Subject, p *query.Program, found func(Evidence)) (n int,
	err error) {
	hit := func(e Evidence) bool { n++; found(e); return true }
	switch of {
	case query.Processes:
		err = query.ProcessesOf(s.Bundle, s.facts.Table, p, func(x *query.Process) bool {
			return hit(Evidence{Text: fmt.Sprintf("process %d %s", x.PID, view.Cut(view.QuoteArgs(x.Argv), 200)),
				Layer: schema.KernelPath})
		})
	case query.Calls:
		err = query.FindCalls(s.Bundle, p, func(c *schema.Binding) bool {
			return hit(Evidence{Text: strings.TrimSpace("call " + c.ToolCallID + " " + c.Tool),
				Layer: schema.CorrelationPath})
		})
	case query.Turns:
		err = query.FindTurns(ctx, s.Bundle, p, func(t *schema.Turn, _ []byte) bool {
			return hit(Evidence{Text: fmt.Sprintf("turn %d %s", t.Index, t.Tool), Layer: schema.TurnsPath,
				Line: t.Seq + 1})
		})
	case query.Runs:
		var ok bool
		if ok, err = query.FindRun(s.Bundle, p); ok {
			hit(Evidence{Text: "run " + s.RunID()})
		}
	}
	return n, err
}

// evidence describes a line, with the reason if it is doubtful.
func (s *subject) evidence(l *facts.Line) Evidence {
	k, doubt := l.Event, ""
	if l.Names.Doubtful() {
		doubt = " (doubtful: " + string(l.Names) + ")"
	}
	return Evidence{Text: fmt.Sprintf("%s %s%s by process %d at %.3fs%s", k.Kind, view.Cut(view.What(k), 240),
		s.facts.Network(k).Mark(), k.PID, float64(k.TNS)/1e9, doubt), Layer: schema.KernelPath, Line: k.Seq + 1}
}
