package view

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Filter selects events. An event must match every field that is set, and one value of each list. The zero Filter
// selects all events of the kernel layer. A field that only kernel events have excludes the events of other layers.
type Filter struct {
	// Layers are names of layers as in observation-health.json (lifecycle,
	// kernel, policy, sdk, turns, audit). Empty means kernel.
	Layers []string
	// Kinds are kinds of kernel events (openat, exec, ...) or event types of
	// other layers.
	Kinds []string
	// PIDs, ExecIDs and Process select processes. Process is a glob that matches the executable's path or base name,
	// the base name of the first argument, or the arguments joined with spaces. Descendants also selects the
	// processes that these started, directly or not.
	PIDs        []uint32
	ExecIDs     []uint64
	Process     string
	Descendants bool
	// Path is a doublestar glob over an event's paths.
	Path string
	// Host is a host name or a glob of one, an address, a prefix in CIDR form,
	// or an "address:port".
	Host string
	// Result is ok, error, blocked, or the name of an errno (ENOENT).
	Result string
	// Classes are event classes.
	Classes []string
	// Since and Until limit the time since the run's start. Until 0 means no limit.
	Since, Until time.Duration
	// ToolCall is a tool call id.
	ToolCall string
}

// errFilter is wrapped by the error of an invalid filter.
var errFilter = errors.New("invalid filter")

// matcher is a compiled filter.
type matcher struct {
	Filter
	kinds    map[schema.KernelKind]bool
	names    map[string]bool // Kinds as a set
	classes  map[schema.Class]bool
	prefix   netip.Prefix
	errno    int64
	kernel   bool // a field is set that only kernel events have
	picked   idSet
	pathLit  string // the beginning of every match
	pathGlob bool
}

func (f Filter) compile() (*matcher, error) {
	m := &matcher{Filter: f}
	bad := func(format string, args ...any) (*matcher, error) {
		return nil, fmt.Errorf("%w: %s", errFilter, fmt.Sprintf(format, args...))
	}
	if len(m.Layers) == 0 {
		m.Layers = []string{schema.LayerName(schema.KernelPath)}
	}
	for _, l := range m.Layers {
		if !slices.ContainsFunc(schema.AllLayers, func(p string) bool { return schema.LayerName(p) == l }) {
			return bad("%q is not a layer", l)
		}
	}
	if len(f.Kinds) > 0 {
		m.kinds, m.names = make(map[schema.KernelKind]bool), make(map[string]bool)
		onlyKernel := len(m.Layers) == 1 && m.Layers[0] == schema.LayerName(schema.KernelPath)
		for _, s := range f.Kinds {
			k, ok := schema.ParseKind(s)
			if !ok && onlyKernel {
				return bad("%q is not a kind of kernel event", s)
			}
			if ok {
				m.kinds[k] = true
			}
			m.names[s] = true
		}
	}
	if len(f.Classes) > 0 {
		m.classes = make(map[schema.Class]bool)
		for _, s := range f.Classes {
			c, ok := schema.ParseClass(s)
			if !ok {
				return bad("%q is not a class", s)
			}
			m.classes[c] = true
		}
	}
	switch f.Result {
	case "", "ok", "error", "blocked":
	default:
		n, ok := schema.ParseErrno(strings.ToUpper(f.Result))
		if !ok {
			return bad("result is %q, want ok, error, blocked or an errno's name such as ENOENT", f.Result)
		}
		m.errno = n
	}
	for what, g := range map[string]string{"path": f.Path, "process": f.Process, "host": f.Host} {
		if err := config.CheckGlob(g); err != nil {
			return bad("%s: %v", what, err)
		}
	}
	if p, err := netip.ParsePrefix(f.Host); err == nil {
		m.prefix = p.Masked()
	}
	if i := strings.IndexAny(f.Path, `*?[{\`); i >= 0 {
		m.pathLit, m.pathGlob = f.Path[:i], true
	}
	if f.Until != 0 && f.Until < f.Since {
		return bad("until %v is before since %v", f.Until, f.Since)
	}
	if f.Process != "" || len(f.PIDs) > 0 || len(f.ExecIDs) > 0 {
		m.picked = make(idSet)
	}
	m.kernel = m.picked != nil || f.Path != "" || f.Host != "" || f.Result != "" || len(f.Classes) > 0
	return m, nil
}

// kernelEvent reports whether e matches. Events must come in order, since it learns from them which processes are
// picked.
func (m *matcher) kernelEvent(e *schema.KernelEvent) bool {
	if m.picked != nil && !m.process(e) {
		return false
	}
	switch {
	case m.kinds != nil && !m.kinds[e.Kind] && !m.names[e.Kind.String()],
		m.classes != nil && !m.classes[e.Class],
		m.ToolCall != "" && e.ToolCallID != m.ToolCall,
		!m.time(e),
		m.Result != "" && !m.result(e),
		m.Path != "" && !m.path(e),
		m.Host != "" && !m.host(e):
		return false
	}
	return true
}

func (m *matcher) time(e *schema.KernelEvent) bool {
	first, last := e.TNS, e.TNS
	if e.Repeat {
		first, last = e.TFirstNS, e.TLastNS
	}
	return last >= int64(m.Since) && (m.Until == 0 || first <= int64(m.Until))
}

// idSet is a bit set of exec_ids, which count up from 1.
type idSet map[uint64]uint64

func (s idSet) add(id uint64)      { s[id/64] |= 1 << (id % 64) }
func (s idSet) has(id uint64) bool { return s[id/64]&(1<<(id%64)) != 0 }

// process reports whether e belongs to a picked process, and picks processes. None is removed at its exit, since byte
// counts of connections come later.
func (m *matcher) process(e *schema.KernelEvent) bool {
	in := m.picks(e) || e.ExecID != 0 && m.picked.has(e.ExecID)
	switch e.Kind {
	case schema.KindFork, schema.KindExec, schema.KindJoin:
		in = in || m.Descendants && e.ParentExecID != 0 && m.picked.has(e.ParentExecID)
		if in && e.ExecID != 0 {
			m.picked.add(e.ExecID)
		}
	}
	return in
}

func (m *matcher) picks(e *schema.KernelEvent) bool {
	if slices.Contains(m.PIDs, e.PID) || slices.Contains(m.ExecIDs, e.ExecID) {
		return true
	}
	if m.Process == "" || e.Kind != schema.KindExec && e.Kind != schema.KindJoin {
		return false
	}
	exe := e.Value
	if e.Kind == schema.KindJoin {
		exe = e.Exe
	}
	return glob(m.Process, exe) || glob(m.Process, path.Base(exe)) ||
		len(e.Argv) > 0 && (glob(m.Process, path.Base(e.Argv[0])) || wildcard(m.Process, strings.Join(e.Argv, " ")))
}

func (m *matcher) result(e *schema.KernelEvent) bool {
	switch m.Result {
	case "ok":
		return e.HasResult && !e.Failed()
	case "error":
		return e.Failed() || e.Blocked()
	case "blocked":
		return e.Blocked()
	}
	return e.HasResult && e.Result == -m.errno
}

// path reports whether a path of e matches: of a touched file, a new working directory, a mount point or a socket.
func (m *matcher) path(e *schema.KernelEvent) bool {
	if p := Path(e); p != "" && m.pathMatches(p) {
		return true
	}
	if p, ok := strings.CutPrefix(e.Value, "unix:"); ok && e.Protocol == "unix" {
		return m.pathMatches(p)
	}
	for name, how := range e.Touches() {
		if how != schema.AccessConnect && m.pathMatches(name) {
			return true
		}
	}
	return false
}

func (m *matcher) pathMatches(p string) bool {
	if !m.pathGlob {
		return p == m.Path
	}
	return strings.HasPrefix(p, m.pathLit) && glob(m.Path, p)
}

func (m *matcher) host(e *schema.KernelEvent) bool {
	ep := e.Value
	switch e.Kind {
	case schema.KindConnect, schema.KindConnectBlocked, schema.KindBind, schema.KindListen, schema.KindAccept,
		schema.KindSendto, schema.KindFlow, schema.KindConnectResult, schema.KindForeignSocket, schema.KindInherited:
	case schema.KindDNS, schema.KindTLS:
		if glob(m.Host, e.Value) {
			return true
		}
		ep = e.Remote
	default:
		return false
	}
	for _, n := range e.Names {
		if glob(m.Host, n) {
			return true
		}
	}
	if ep == m.Host {
		return true
	}
	ap, err := netip.ParseAddrPort(ep)
	return err == nil && (ap.Addr().String() == m.Host || m.prefix.IsValid() && m.prefix.Contains(ap.Addr()))
}

func glob(pattern, s string) bool {
	ok, _ := doublestar.Match(pattern, s) // compile has checked the pattern
	return ok
}

// wildcard is like glob, but slashes are not special.
func wildcard(pattern, s string) bool {
	const slash = "\uffff"
	return glob(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(s, "/", slash))
}

// wants reports whether an event matches.
func (m *matcher) wants(ev *Event) bool {
	if ev.Kernel != nil {
		return m.kernelEvent(ev.Kernel)
	}
	return (m.names == nil || m.names[ev.Kind]) && (m.ToolCall == "" || ev.ToolCall == m.ToolCall) &&
		ev.TNS >= int64(m.Since) && (m.Until == 0 || ev.TNS <= int64(m.Until))
}
