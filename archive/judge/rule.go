package judge

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// subject is a bundle that is being judged, with what the rules that look at
// events found in it.
type subject struct {
	*view.Bundle
	run   query.Run
	found map[*rule]*Verdict
	made  madeFiles
}

// read reads the kernel layer once for all rules that look at events.
func (s *subject) read(ctx context.Context, rules []*rule) error {
	s.found = map[*rule]*Verdict{}
	var looking []*rule
	for _, r := range rules {
		if r.event != nil {
			s.found[r] = &Verdict{State: Pass}
			looking = append(looking, r)
			if r.begin != nil {
				r.begin(s)
			}
		}
	}
	if len(looking) == 0 {
		return nil
	}
	for k, err := range archive.KernelEvents(s.Lines(ctx, schema.KernelPath)) {
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if k.Class == schema.ClassRunner || k.Class == schema.ClassCheck {
			continue // our own doing
		}
		s.made.event(k)
		for _, r := range looking {
			if r.event(k) {
				s.found[r].found(eventEvidence(k))
			}
		}
	}
	return nil
}

// gaps are why the bundle does not support conclusions about the subjects.
func (s *subject) gaps(about ...view.Subject) []view.Gap {
	var all []view.Gap
	if !s.Verified() {
		all = append(all, view.Gap{Text: "the bundle does not verify", Remedy: "judge the bundle that was sealed"})
	}
	for _, a := range about {
		for _, g := range view.Claim(s.Docs, a) {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	return all
}

// clean is the verdict where nothing was found against a rule: it passes when
// the bundle supports that.
func (s *subject) clean(v Verdict, good string, about ...view.Subject) Verdict {
	if gaps := s.gaps(about...); len(gaps) > 0 {
		v.unknown(gaps...)
		return v
	}
	v.State, v.Message = Pass, good
	return v
}

// watching makes a rule that no event may break.
func watching(about view.Subject, good, bad string, breaks func(*schema.KernelEvent) bool) *rule {
	r := &rule{event: breaks}
	r.check = func(_ context.Context, s *subject) (Verdict, error) {
		v := *s.found[r]
		if v.State == Fail {
			v.Message = fmt.Sprintf("%d events: %s", len(v.Evidence)+v.More, bad)
			return v, nil
		}
		return s.clean(v, good, about), nil
	}
	return r
}

// anybodys are files that programs write to without leaving anything.
var anybodys = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/pts/*",
	"/dev/ptmx"}

func (m *maker) onlyWorkspaceWrites(value ast.Node) (*rule, error) {
	var also []string
	if on(value) != nil {
		var v struct {
			Also []string `yaml:"also"`
		}
		if err := yaml.NodeToValue(value, &v, yaml.Strict()); err != nil {
			return nil, fmt.Errorf("its value must be true, or also: with a list of globs: %w", err)
		}
		also = v.Also
	}
	var workdir string
	breaks := func(k *schema.KernelEvent) bool {
		if !query.Writes(k) || k.Failed() {
			return false
		}
		paths := []string{k.Value}
		switch k.Kind {
		case schema.KindRename:
			paths = append(paths, k.Target)
		case schema.KindLink:
			paths = []string{k.Target}
		}
		if k.Marks&(schema.MarkRelative|schema.MarkUnreachable|schema.MarkMountNamespace) != 0 ||
			k.Truncated&(schema.FieldValue|schema.FieldTarget) != 0 {
			return true // where that is cannot be told
		}
		return slices.ContainsFunc(paths, func(p string) bool {
			return strings.HasPrefix(p, "/") && !within(p, workdir) && !matches(anybodys, p) && !matches(also, p) &&
				k.Marks&schema.MarkMemfd == 0
		})
	}
	r := watching(view.Files, "only the workspace was written to", "written outside of the workspace", breaks)
	r.begin = func(s *subject) { workdir = s.Docs.Run.Workdir }
	return r, nil
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	p, dir = path.Clean(p), path.Clean(dir)
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func (m *maker) onlyHosts(value ast.Node) (*rule, error) {
	hosts, err := globs(value)
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
	return watching(view.Hosts, "only allowed hosts were contacted", "other hosts were contacted",
		func(k *schema.KernelEvent) bool {
			if k.Kind == schema.KindDNS {
				return slices.Contains(hosts, resolvers) && asks(k) && !allowed(k.Value)
			}
			ap, ok := endpointOf(k)
			if !ok || ap.Port() == dnsPort && slices.Contains(hosts, resolvers) {
				return false
			}
			addr := ap.Addr().Unmap()
			if allowed(addr.String()) || allowed(k.Value) || slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
				return p.Contains(addr)
			}) {
				return false
			}
			return !slices.ContainsFunc(k.Names, allowed)
		}), nil
}

// resolvers is the entry of only_hosts that allows DNS: any server on port 53, which may be
// asked for the allowed names and no others, since a question can carry data out.
const (
	resolvers = "resolvers"
	dnsPort   = 53
)

// asks reports whether a DNS event is a question.
func asks(k *schema.KernelEvent) bool {
	return k.Value != "" && (k.DNS == nil || !k.DNS.Response)
}

// endpointOf is the peer of an event that contacts one over the network.
func endpointOf(k *schema.KernelEvent) (ap netip.AddrPort, ok bool) {
	switch k.Kind {
	case schema.KindConnect, schema.KindSendto, schema.KindFlow, schema.KindConnectBlocked, schema.KindAccept:
		ap, err := netip.ParseAddrPort(k.Value)
		return ap, err == nil // else it is a socket of this host
	}
	return ap, false
}

func (m *maker) onlyPrograms(value ast.Node) (*rule, error) {
	programs, err := globs(value)
	if err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(slices.Clone(programs), func(p string) bool { return strings.Contains(p, "/") })
	var made *madeFiles
	r := watching(view.Programs, "only allowed programs were executed", "other programs were executed",
		func(k *schema.KernelEvent) bool {
			if k.Kind != schema.KindExec || matches(programs, k.Value) {
				return false
			}
			// A name says which program it is only where the run did not choose what it holds.
			return made.has(k) || !matches(names, path.Base(k.Value))
		})
	r.begin = func(s *subject) { made = &s.made }
	return r, nil
}

// madeFiles are the files that a run has made or written so far.
type madeFiles struct {
	paths map[string]bool
	bytes int
	full  bool
}

// maxMade bounds what is kept of the paths, in bytes. Beyond it every program may have
// been made by the run.
const maxMade = 16 << 20

func (m *madeFiles) event(k *schema.KernelEvent) {
	if k.Failed() || m.full {
		return
	}
	for name, how := range k.Touches() {
		if how&(schema.AccessCreate|schema.AccessWrite) == 0 || m.paths[name] {
			continue
		}
		if m.bytes += len(name) + 32; m.bytes > maxMade {
			m.full = true
			return
		}
		if m.paths == nil {
			m.paths = map[string]bool{}
		}
		m.paths[strings.Clone(name)] = true
	}
}

// any reports whether the run may have made the program that k executes, or a file that it is given to execute.
func (m *madeFiles) any(k *schema.KernelEvent) bool {
	return m.has(k) || slices.ContainsFunc(k.Argv, func(arg string) bool {
		if !path.IsAbs(arg) {
			arg = path.Join(k.Cwd, arg)
		}
		return m.paths[path.Clean(arg)]
	})
}

// has reports whether the run may have made the program that k executes.
func (m *madeFiles) has(k *schema.KernelEvent) bool {
	return m.full || m.paths[k.Value] || k.Marks&schema.MarkMemfd != 0
}

func (m *maker) noPrivileged(value ast.Node) (*rule, error) {
	return watching(view.Privilege, "nothing that needs privilege was done", "privileged system calls succeeded",
		func(k *schema.KernelEvent) bool {
			switch k.Kind {
			case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace,
				schema.KindBPF, schema.KindModule, schema.KindChroot, schema.KindLeave:
				return !k.Failed()
			}
			return false
		}), on(value)
}

func (m *maker) contractPassed(value ast.Node) (*rule, error) {
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
	}}, on(value)
}

func (m *maker) noUndeclaredActions(value ast.Node) (*rule, error) {
	if on(value) != nil && value.Type() == ast.MappingType {
		return m.declaredActions(value)
	}
	return &rule{check: func(_ context.Context, s *subject) (Verdict, error) {
		v := Verdict{State: Pass}
		for _, u := range s.Docs.Correlation.ObservedNotReported {
			if u.Code == "edge" || u.Code == "overlap" { // part of some call that was reported
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
			v.Message = fmt.Sprintf("%d actions were not part of what was reported", len(v.Evidence)+v.More)
			return v, nil
		}
		return s.clean(v, "everything that was done was part of what was reported", view.Programs, view.Files,
			view.Hosts, view.Calls), nil
	}}, on(value)
}

func (m *maker) noNewCapability(value ast.Node) (*rule, error) {
	var base string
	if err := yaml.NodeToValue(value, &base); err != nil || base == "" {
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
		c := CapabilityOf(from.Docs, s.Docs)
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
			v.Message = fmt.Sprintf("%d capabilities are new", len(v.Evidence)+v.More)
			// What the base may have had, unobserved, is not surely new.
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
