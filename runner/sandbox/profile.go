package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Profile is a policy in effect: the meaning of Settings in one working directory, for one user, at one moment. Its
// JSON is in the bundle's policy.json, without values of the environment.
type Profile struct {
	Mode          string `json:"mode"`
	OnUnavailable string `json:"on_unavailable"`
	Dir           string `json:"workdir"`
	// Write are the trees and files that may be written; DenyWrite are exceptions below them. DenyRead cannot be
	// opened; AllowRead are exceptions below those.
	Write     []Path `json:"write"`
	DenyWrite []Path `json:"deny_write"`
	DenyRead  []Path `json:"deny_read"`
	AllowRead []Path `json:"allow_read"`
	// Private are directories of the run's own, empty at its start.
	Private []Path `json:"private"`
	// Absent are paths in the policy that do not exist: nothing was allowed there, and nothing could be protected.
	Absent []Path `json:"absent"`
	// Plan is what the lists of paths mean together, and what applies to everything else.
	Plan    *Plan      `json:"plan"`
	Network NetProfile `json:"network"`
	Env     EnvProfile `json:"env"`
	User    *User      `json:"user"`
	PIDs    bool       `json:"isolate_pid"`
	// Home is the command's home directory; nil where nothing restricts the command's files.
	Home *Home `json:"home,omitzero"`
	// NoTyping forbids input into a terminal by ioctl, in every mode.
	NoTyping   bool `json:"no_typing,omitzero"`
	env        *sandboxfile.Env
	sockets    []Path // of other processes; hidden if files can be hidden
	open       bool   // the file system is not restricted
	fresh      string // see Strict; otherwise empty
	away       *Away  // see Away; otherwise nil
	exact      bool   // what must not be written stays so below it, too
	patterns   map[Path]bool
	homeMounts []string          // what stays as it is in the private home: mounts, and sockets that may be reached
	shown      []string          // sockets that may be reached
	asks       bool              // other sockets of processes outside may not
	listened   bool              // see Context.Listened
	layer      string            // the open layer of the private home
	only       []shim.Place      // mounts instead of those of the plan, to try them
	ids        map[string]uint64 // of rules; nil: see RuleID
	home       string            // the home of the command's user; empty if not known
	obeyed     *startup.Set      // see Obeyed
	links      map[string]string // symbolic links to copies, by the file that they cover; see carriedAt
	copies     string            // the directory of the copies
	looked     *startup.Where
	replaced   []shim.Place // see Replace
	insists    bool         // see Insist
	tests      []Path       // of a check: directories that the command does not see
	hidden     []string     // with it
}

// Path is a path with its rule, such as filesystem.denyRead[0] or protected.
type Path struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

// NetProfile is the network in effect.
type NetProfile struct {
	Mode           string   `json:"mode"`
	AllowedDomains []string `json:"allowed_domains"`
	DeniedDomains  []string `json:"denied_domains"`
	LocalPorts     []int    `json:"local_ports"`
	UnixSockets    []string `json:"unix_sockets"`
	// Proxy is the proxy's address inside; empty without one, and before the sandbox is made.
	Proxy string `json:"proxy,omitempty"`

	reasons map[string]string
}

// EnvProfile has the names of variables that pass (null: all), are set, and are dropped.
type EnvProfile struct {
	Pass []string `json:"pass"`
	Set  []string `json:"set"`
	Drop []string `json:"drop"`
}

// Restricted reports whether the profile restricts anything and so needs layers.
func (p *Profile) Restricted() bool { return p.Mode != sandboxfile.Observe || p.PIDs || p.User != nil }

// Layer is the result of a layer of the sandbox.
type Layer = shim.Report

// Layers in the order in which they are built.
const (
	LayerPrivileges = shim.Privileges
	LayerNamespaces = shim.Namespaces
	LayerFiles      = shim.Files
	LayerNetwork    = shim.Network
	LayerLandlock   = shim.Landlock
	LayerSeccomp    = shim.Seccomp
	LayerSockets    = shim.Sockets
	LayerCgroupBPF  = "cgroup_bpf" // cgroup programs that check addresses
)

// States of a layer.
const (
	Enforced    = shim.Enforced
	Degraded    = shim.Degraded
	Unavailable = shim.Unavailable
)

// Context is where Settings take effect.
type Context struct {
	// Dir is the command's working directory, an absolute path.
	Dir string
	// Home is the current user's home directory, or empty. A user named in the settings has their own.
	Home string
	// Env is the command's environment before the policy is applied.
	Env []string
	// Evidence are existing directories that the command must not reach in any mode but Observe.
	Evidence []string
	// Tests are existing directories that the command must not reach in any mode but Observe, and that checks of a
	// contract can read, but not write.
	Tests []string
	// Protect are files that the command must not write, such as the policy itself.
	Protect []string
	// Reach are the runner's files and sockets that the command needs, and may write.
	Reach []string
	// IsolatePID adds a PID namespace in every mode.
	IsolatePID bool
	// Listened means that the command's calls already have a seccomp listener, as with kernel/notify.
	Listened bool
	// NoTyping forbids input into a terminal by ioctl; see CanType.
	NoTyping bool
}

// maxMatches limits the files that one pattern may match.
const maxMatches = 10_000

// lookup returns a variable's last value.
func lookup(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// Resolve returns the meaning of s in c. Symbolic links in paths are followed now: what is created or renamed later
// changes nothing.
func Resolve(s *sandboxfile.Settings, c Context) (*Profile, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("working directory %q: the path is not absolute", c.Dir)
	}
	p := &Profile{
		Mode: s.EffectiveMode(), OnUnavailable: s.OnUnavailable, Dir: c.Dir, PIDs: c.IsolatePID, NoTyping: c.NoTyping,
		env: s.Env, open: s.Unrestricted, exact: s.Exact, listened: c.Listened, patterns: map[Path]bool{},
		Write: []Path{}, DenyWrite: []Path{}, DenyRead: []Path{}, AllowRead: []Path{}, Private: []Path{},
		Absent: []Path{},
	}
	if p.OnUnavailable == "" {
		p.OnUnavailable = sandboxfile.Fail
	}
	if dir, err := filepath.EvalSymlinks(c.Dir); err == nil {
		c.Dir, p.Dir = dir, dir
	}
	p.network(s)
	p.environment(s.Env)
	var err error
	if p.User, err = findUser(string(s.User)); err != nil {
		return nil, err
	}
	if p.User != nil {
		c.Home = p.User.home
	}
	p.home = c.Home
	if p.Mode == sandboxfile.Observe {
		p.open = true
		return p, p.settle()
	}
	p.PIDs = true
	outside := p.outsideSockets() // it takes a while
	if !p.open {
		if err := p.files(s, c); err != nil {
			return nil, err
		}
	}
	evidence := slices.Clone(c.Evidence)
	if kept, err := rundir.Kept(); err == nil {
		evidence = append(evidence, kept)
	}
	for rule, dirs := range map[string][]string{ruleEvidence: evidence, ruleTests: c.Tests} {
		for _, dir := range dirs {
			real, err := filepath.Abs(dir)
			if err == nil {
				real, err = filepath.EvalSymlinks(real)
			}
			if err != nil {
				return nil, fmt.Errorf("%s directory: %w", rule, err)
			}
			p.DenyRead = append(p.DenyRead, Path{real, rule})
		}
	}
	if err := p.setHome(s, c); err != nil {
		return nil, err
	}
	if err := p.private(s, c, outside); err != nil {
		return nil, err
	}
	for _, d := range p.DenyRead {
		if d.Path == "/" && d.Rule != ruleEvidence && d.Rule != ruleTests {
			return nil, fmt.Errorf("%s hides /, so no program could start; name the directories below it", d.Rule)
		}
	}
	p.DenyRead = slices.DeleteFunc(p.DenyRead, func(d Path) bool { return d.Path == "/" })
	var most config.Bytes
	if s.Limits != nil {
		most = s.Limits.Home
	}
	return p, p.settleHome(most)
}

func (p *Profile) network(s *sandboxfile.Settings) {
	n := s.Network
	if n == nil {
		n = &sandboxfile.Network{}
	}
	p.Network = NetProfile{
		Mode: s.NetworkMode(), AllowedDomains: list(n.AllowedDomains), DeniedDomains: list(n.DeniedDomains),
		LocalPorts: list(n.AllowLocalPorts), UnixSockets: list(n.AllowUnixSockets), reasons: n.Reasons,
	}
}

func (p *Profile) environment(e *sandboxfile.Env) {
	p.Env = EnvProfile{Set: []string{}, Drop: []string{}}
	if e == nil {
		return
	}
	if e.Pass != nil {
		p.Env.Pass = list(*e.Pass)
	}
	p.Env.Drop = list(e.Drop)
	for k := range e.Set {
		p.Env.Set = append(p.Env.Set, k)
	}
	slices.Sort(p.Env.Set)
}

func list[T any](l []T) []T { return append([]T{}, l...) }

// files sets the lists of paths.
func (p *Profile) files(s *sandboxfile.Settings, c Context) error {
	f := s.Filesystem
	if f == nil {
		f = &sandboxfile.Filesystem{}
	}
	if p.Mode == sandboxfile.WorkspaceWrite {
		roots := []Path{}
		if !s.Exact {
			roots = append(roots, Path{c.Dir, "mode"}, Path{"/tmp", "mode"})
			if t := lookup(c.Env, "TMPDIR"); filepath.IsAbs(t) {
				roots = append(roots, Path{t, "mode"})
			}
		}
		if !s.Exact {
			for _, dir := range startup.Repository(c.Dir) {
				roots = append(roots, Path{dir, ruleGit})
			}
		}
		for i, path := range f.AllowWrite {
			roots = append(roots, Path{path, fmt.Sprintf("filesystem.allowWrite[%d]", i)})
		}
		if err := p.expand(&p.Write, roots, c); err != nil {
			return err
		}
	} else if len(f.AllowWrite) > 0 {
		return errors.New("filesystem.allowWrite: nothing is writable in mode read-only; omit it, or " +
			"choose workspace-write")
	}
	for _, l := range []struct {
		into  *[]Path
		key   string
		paths []string
	}{{&p.DenyWrite, "denyWrite", f.DenyWrite}, {&p.DenyRead, "denyRead", f.DenyRead},
		{&p.AllowRead, "allowRead", f.AllowRead}} {
		var named []Path
		for i, path := range l.paths {
			named = append(named, Path{path, fmt.Sprintf("filesystem.%s[%d]", l.key, i)})
		}
		if err := p.expand(l.into, named, c); err != nil {
			return err
		}
	}
	return p.protect(s, f, c)
}

// expand appends to into what paths match, without symbolic links.
func (p *Profile) expand(into *[]Path, paths []Path, c Context) error {
	links := directories{}
	for _, named := range paths {
		pattern := false
		path, err := absolute(named.Path, c)
		if err != nil {
			return fmt.Errorf("%s: %w", named.Rule, err)
		}
		path = strings.TrimSuffix(strings.TrimSuffix(path, "/**"), "/*")
		found := []string{path}
		if strings.ContainsAny(path, "*?[{") {
			if _, err := os.Lstat(path); err != nil { // no file has this literal name
				if found, err = doublestar.FilepathGlob(path, doublestar.WithNoFollow()); err != nil {
					return fmt.Errorf("%s: %q: %w", named.Rule, named.Path, err)
				}
				if pattern = true; len(found) > maxMatches {
					return fmt.Errorf("%s: %q stands for %d files; at most %d are allowed", named.Rule, named.Path,
						len(found), maxMatches)
				}
				if len(found) == 0 {
					p.Absent = append(p.Absent, Path{path, named.Rule})
				}
			}
		}
		for _, f := range found {
			real, err := links.follow(f)
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
				p.Absent = append(p.Absent, Path{f, named.Rule})
			case err != nil:
				return fmt.Errorf("%s: %w", named.Rule, err)
			case real != f && p.swappable(f):
				return fmt.Errorf("%s: %s is a symbolic link that the command could replace; "+
					"name what it points to, %s",
					named.Rule, f, real)
			default:
				*into = append(*into, Path{real, named.Rule})
				if pattern {
					p.patterns[Path{real, named.Rule}] = true
				}
			}
		}
	}
	return nil
}

// swappable reports whether path uses a symbolic link in a directory that the command may write.
func (p *Profile) swappable(path string) bool {
	for at := path; at != "/"; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if dir, err := filepath.EvalSymlinks(filepath.Dir(at)); err == nil && p.writable(dir) {
				return true
			}
		}
	}
	return false
}

// writable reports whether Write allows the command to write below path.
func (p *Profile) writable(path string) bool {
	return slices.ContainsFunc(p.Write, func(w Path) bool { return schema.Below(path, w.Path) })
}

func absolute(path string, c Context) (string, error) {
	switch {
	case path == "~" || strings.HasPrefix(path, "~/"):
		if c.Home == "" {
			return "", fmt.Errorf("%q: there is no home directory; set HOME, or write the path out", path)
		}
		return filepath.Join(c.Home, path[1:]), nil
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(c.Dir, path), nil
}

// protect denies what nobody meant to allow by allowing the directory that contains it.
func (p *Profile) protect(s *sandboxfile.Settings, f *sandboxfile.Filesystem, c Context) error {
	if p.Mode != sandboxfile.WorkspaceWrite {
		return nil
	}
	p.looked = &startup.Where{Dir: p.Dir, Home: c.Home}
	var private []string // see privateTmp
	if tmp, err := filepath.EvalSymlinks("/tmp"); err == nil && f.PrivateTmp {
		private = append(private, tmp)
	}
	for _, w := range p.Write {
		if info, err := os.Stat(w.Path); err != nil || !info.IsDir() {
			continue
		}
		if w.Rule == RuleMode && w.Path != p.Dir && schema.Below(w.Path, private...) {
			continue // the command does not see it
		}
		if w.Rule == RuleMode { // the working directory, and those for temporary files
			p.looked.Shared, p.looked.Tops = append(p.looked.Shared, w.Path), append(p.looked.Tops, w.Path)
		} else {
			p.looked.Trees = append(p.looked.Trees, w.Path)
		}
	}
	p.obeyed = startup.Search(context.Background(), *p.looked)
	named := map[string]bool{}
	for _, path := range f.AllowWrite {
		if at, err := absolute(path, c); err == nil {
			named[at] = true
		}
	}
	if s.GitConfig {
		for _, path := range p.obeyed.Configs {
			named[path] = true
		}
	}
	for _, path := range slices.Concat(c.Protect, p.obeyed.Files) {
		_, err := os.Lstat(path)
		if err == nil && !named[path] && p.writable(path) {
			p.DenyWrite = append(p.DenyWrite, Path{path, ruleProtected})
		}
	}
	slices.SortFunc(p.DenyWrite, func(a, b Path) int { return strings.Compare(a.Path, b.Path) })
	p.DenyWrite = slices.CompactFunc(p.DenyWrite, func(a, b Path) bool { return a.Path == b.Path })
	return nil
}

const (
	ruleProtected = "protected" // programs outside of the sandbox obey it
	ruleGit       = "git"       // the working directory's repository
)

// Obeyed is what programs outside of the sandbox obeyed when the profile was made, and where that was looked for. It is
// nil if the mode lets the command write nothing, or everything.
func (p *Profile) Obeyed() (*startup.Set, *startup.Where) { return p.obeyed, p.looked }

// Explain describes the profile in a few lines for people.
func (p *Profile) Explain() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(what, value, rule string) { fmt.Fprintf(w, "%s\t%q\t%s\n", what, value, rule) }
	fmt.Fprintf(w, "mode\t%s\n", p.Mode)
	if p.Mode == sandboxfile.Observe {
		fmt.Fprintf(w, "\tnothing is restricted\n")
		w.Flush()
		return b.String()
	}
	fmt.Fprintf(w, "a missing layer\t%s\n",
		map[string]string{sandboxfile.Fail: "keeps the command from starting",
			sandboxfile.Degrade: "is reported, and the command starts without it"}[p.OnUnavailable])
	for _, d := range p.Plan.Paths {
		if d.Rule != ruleDevices && d.Target != "/" {
			row(p.Plan.means(d), d.Target, d.Because())
		}
	}
	if len(p.Plan.Apart) > 1 {
		fmt.Fprintf(w, "cannot link or rename between\t%q\n", p.Plan.Apart)
	}
	if h := p.Home; h != nil && h.State == sandboxfile.HomeReal && h.Reason != "" {
		fmt.Fprintf(w, "the home directory is real\t%s\n", h.Reason)
	}
	for _, at := range p.Absent {
		row("does not exist, so has no effect", at.Path, at.Rule)
	}
	for _, d := range p.Plan.Sockets {
		if d.Access == AccessConnect {
			row("may connect to", d.Target, d.Rule)
		}
	}
	fmt.Fprintf(w, "network\t%s\n", map[string]string{
		sandboxfile.NetNone: "none", sandboxfile.NetLoopback: "its own loopback device, nothing else",
		sandboxfile.NetAllowlist: "through the proxy, to allowed domains",
		sandboxfile.NetHost:      "the host's, unrestricted",
	}[p.Network.Mode])
	for _, d := range p.Plan.Hosts {
		switch {
		case d.Target == "*":
		case d.Access == AccessConnect:
			row("may connect to", d.Target, d.Rule)
		default:
			row("may not connect to", d.Target, d.Rule)
		}
	}
	for _, port := range p.Network.LocalPorts {
		fmt.Fprintf(w, "can be reached by the host on port\t%d\n", port)
	}
	if p.Env.Pass != nil {
		fmt.Fprintf(w, "gets the variables\t%s\n", strings.Join(p.Env.Pass, " "))
	}
	if len(p.Env.Drop) > 0 {
		fmt.Fprintf(w, "does not get the variables\t%s\n", strings.Join(p.Env.Drop, " "))
	}
	for _, c := range callClasses {
		fmt.Fprintf(w, "calls are refused\t%s\t%s\n", c.what, c.rule())
	}
	if p.User != nil {
		fmt.Fprintf(w, "runs as\tuid %d, gid %d\n", p.User.UID, p.User.GID)
	}
	w.Flush()
	return b.String()
}

// private gives the run its own versions of the directories where system services have their sockets, and lists
// sockets elsewhere: a path reaches a socket from every network namespace.
func (p *Profile) private(s *sandboxfile.Settings, c Context, outside func([]string) []string) error {
	reach := append(append([]string{}, p.Network.UnixSockets...), c.Reach...)
	var shown []string
	for _, path := range reach {
		at, err := absolute(path, c)
		if err != nil {
			return err
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			p.Absent = append(p.Absent, Path{at, "network.allowUnixSockets"})
			continue
		}
		shown = append(shown, real)
	}
	p.shown, p.asks = shown, !s.Sockets
	if s.Filesystem != nil && s.Filesystem.PrivateTmp {
		if err := p.privateTmp(c); err != nil {
			return err
		}
	}
	if s.Sockets {
		return nil
	}
	for _, dir := range []string{"/run", "/var/run", lookup(c.Env, "XDG_RUNTIME_DIR"), "/tmp/.X11-unix",
		"/tmp/.ICE-unix"} {
		p.addPrivate(dir, RuleSockets)
	}
	// On many hosts, the resolver's configuration is there.
	for _, path := range append(shown, "/etc/resolv.conf") {
		real, err := filepath.EvalSymlinks(path)
		covered := func(d Path) bool { return schema.Below(real, d.Path) && real != d.Path }
		if err == nil && (schema.Below(real, "/dev/shm") || slices.ContainsFunc(p.Private, covered)) {
			p.AllowRead = append(p.AllowRead, Path{real, RuleSockets})
		}
	}
	known := namedSockets(c.Env) // that may be bound where this process cannot look
	if p.obeyed != nil {
		known = append(known, p.obeyed.Sockets...)
	}
	for _, path := range outside(known) {
		inside := func(d Path) bool { return schema.Below(path, d.Path) }
		if !slices.Contains(shown, path) && !slices.ContainsFunc(p.DenyRead, inside) && !p.covered(path) {
			p.sockets = append(p.sockets, Path{path, RuleSockets})
		}
	}
	return nil
}

// RuleSockets is the rule about unix sockets.
const RuleSockets = "sockets"

// covered reports whether the command cannot see what the host has at path.
func (p *Profile) covered(path string) bool {
	covers := func(d Path) bool { return schema.Below(path, d.Path) }
	return schema.Below(path, "/dev") || schema.Below(path, "/proc") || schema.Below(path, "/sys") ||
		slices.ContainsFunc(p.Private, covers)
}

func (p *Profile) addPrivate(dir, rule string) {
	if !filepath.IsAbs(dir) {
		return
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() || real == "/" {
		return
	}
	if !slices.ContainsFunc(p.Private, func(d Path) bool { return schema.Below(real, d.Path) }) &&
		!schema.Below(p.Dir, real) {
		p.Private = append(p.Private, Path{real, rule})
	}
}

// rulePrivateTmp is the rule for directories in memory.
const rulePrivateTmp = "filesystem.privateTmp"

// privateTmp gives the run its own /tmp, and its own directory below it if TMPDIR names one.
func (p *Profile) privateTmp(c Context) error {
	tmp, err := filepath.EvalSymlinks("/tmp")
	if err != nil {
		return fmt.Errorf("filesystem.privateTmp: %w", err)
	}
	if p.Dir == tmp {
		return fmt.Errorf("filesystem.privateTmp: the working directory is %s; start the command in another directory",
			tmp)
	}
	p.Private = append(p.Private, Path{tmp, rulePrivateTmp})
	if t := lookup(c.Env, "TMPDIR"); filepath.IsAbs(t) {
		real, err := filepath.EvalSymlinks(t)
		if err == nil && real != tmp && schema.Below(real, tmp) && real != p.Dir {
			p.Private = append(p.Private, Path{real, rulePrivateTmp})
		}
	}
	return nil
}

// fileSystem is a mount.
type fileSystem struct {
	dev   string // major:minor of the file system
	root  string // the directory of the file system that is mounted
	point string
}

// fileSystems lists what is mounted.
func fileSystems() []fileSystem {
	var list []fileSystem
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			list = append(list, fileSystem{f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return list
}

// mountPoints lists where something is mounted.
func mountPoints() []string {
	var paths []string
	for _, m := range fileSystems() {
		paths = append(paths, m.point)
	}
	return paths
}

// unescape decodes the octal escapes of mountinfo.
func unescape(s string) string {
	for _, e := range []string{`\040 `, "\\011\t", "\\012\n", `\134\`} {
		s = strings.ReplaceAll(s, e[:4], e[4:])
	}
	return s
}

// namedSockets lists the sockets named in the environment.
func namedSockets(env []string) []string {
	paths := []string{"/var/run/docker.sock", "/run/docker.sock"}
	for _, name := range []string{"SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS",
		"GPG_AGENT_INFO", "TMUX"} {
		v := lookup(env, name)
		if _, rest, ok := strings.Cut(v, "path="); ok {
			v = rest
		}
		v, _, _ = strings.Cut(strings.TrimPrefix(v, "unix://"), ",")
		if filepath.IsAbs(v) {
			paths = append(paths, v)
		}
	}
	return paths
}

// Strict is p for a command that must find nothing of an earlier one: it has its own network, processes and
// directories for temporary files. fresh is an existing directory that it may write. Network mode none stays none.
func (p *Profile) Strict(fresh string) *Profile {
	strict := *p
	strict.realHome("")
	strict.links = nil
	strict.restore()
	strict.bringTests()
	strict.PIDs, strict.fresh, strict.OnUnavailable = true, fresh, sandboxfile.Fail
	strict.Network.AllowedDomains, strict.Network.DeniedDomains, strict.Network.LocalPorts = nil, nil, nil
	if strict.Network.Mode != sandboxfile.NetNone {
		strict.Network.Mode = sandboxfile.NetLoopback
	}
	if strict.Mode != sandboxfile.Observe {
		strict.Write = append(slices.Clone(p.Write), Path{fresh, "strict"})
	}
	_ = strict.settle() // this rule conflicts with none
	return &strict
}

// Away says which directories a strict command sees differently. It may be empty.
type Away struct {
	// Empty are directories that are empty for the command, in addition to those for temporary files. / is not
	// allowed.
	Empty []string
	// Shown are directories below Empty that the command still sees, read-only.
	Shown []string
	// Carried has files that the command sees, read-only, at their paths. A key is a directory of this host that gets
	// files, and its value is a directory that has them under the names that they get there. For a file below Empty,
	// the key is the file's path, and the value is the file.
	Carried map[string]string
	// Home is a directory with the initial contents of the check's own home; empty means that the home begins empty.
	Home string
	// At is the path at which the command sees the working directory; empty: its own path. It is an existing
	// directory, or below one that is empty.
	At string
}

// Away applies a to p, which must be strict. In the directories for temporary files, the command sees only its
// working directory.
func (p *Profile) Away(a Away) *Profile {
	away := *p
	away.away = &a
	return &away
}

// ForCheck is p for a check of a contract: it has the real home, without what the command wrote to its own. No port is
// forwarded to a check, since the command's ports may still be in
// use.
func (p *Profile) ForCheck() *Profile {
	check := *p
	check.Network.LocalPorts = nil
	check.realHome("")
	check.links = nil
	check.restore()
	check.bringTests()
	return &check
}

// Temporary lists the directories for temporary files that Strict covers. Not every host has all of them.
var Temporary = []string{"/tmp", "/var/tmp", "/dev/shm"}

// DeniesCall returns the rule of the profile that forbids a system call that failed with errno, if any. It counts as
// the policy's denial even if the user had no right to make the call.
func (p *Profile) DeniesCall(name string, args []uint64, errno int) (rule string, denied bool) {
	if p.Mode == sandboxfile.Observe ||
		errno != int(syscall.EPERM) && (name != "socket" || errno != int(syscall.EAFNOSUPPORT)) {
		return "", false
	}
	for _, c := range callClasses {
		if slices.Contains(c.calls, name) {
			return c.rule(), name != "ioctl" || len(args) > 1 && types(args[1])
		}
	}
	return "", false
}

// Denies returns the rule of the profile that forbids a failed operation, if any. It counts as the policy's denial
// even if the file's mode forbids it too.
func (p *Profile) Denies(a Attempt) (rule string, denied bool) {
	refused := slices.Contains([]int{int(syscall.EACCES), int(syscall.EPERM), int(syscall.EROFS), int(syscall.EXDEV),
		int(syscall.EBUSY)}, a.Errno)
	switch a.Op {
	case OpConnect, OpBind:
		return p.deniesEndpoint(a, refused)
	case OpSignal, OpPtrace: // of processes outside
		return RuleMode, refused
	case OpRead, OpExec:
		return p.deniesRead(a.Target, refused)
	case OpWrite:
		if rule, denied := p.deniesRead(a.Target, refused); denied {
			return rule, true
		}
		if !refused || p.open || !strings.HasPrefix(a.Target, "/") || a.Target == "/dev/null" {
			return "", false
		}
		d := p.Plan.Path(a.Target)
		if in, keeps := p.Plan.keeps(a.Target); keeps && d.Access.changeable() {
			return in.Rule, !a.Empty // it cannot be renamed
		}
		switch {
		case d.Access.changeable() || d.Access == AccessTemporary:
			return "", false
		case p.Plan.under(d).changeable():
			return d.Rule, true
		case a.Errno == int(syscall.EXDEV) || a.Errno == int(syscall.EBUSY):
			return "", false
		}
		return RuleMode, true
	}
	return "", false
}

func (p *Profile) deniesRead(path string, refused bool) (string, bool) {
	if !refused || !strings.HasPrefix(path, "/") {
		return "", false
	}
	d := p.Plan.Path(path)
	// What is not there is not denied: see Private.
	return d.Rule, d.Access == AccessNone && p.Plan.hides(d.Target)
}

func (p *Profile) deniesEndpoint(a Attempt, refused bool) (string, bool) {
	if path, ok := strings.CutPrefix(a.Target, "unix:"); ok {
		covers := func(s Path) bool { return schema.Below(path, s.Path) }
		bound := slices.ContainsFunc(p.sockets, covers)
		hidden := bound || slices.ContainsFunc(p.Private, covers)
		if a.Errno == int(syscall.ENOENT) && !bound { // the host may not have it either
			_, err := os.Lstat(path)
			hidden = hidden && err == nil
		}
		if hidden && (refused || a.Errno == int(syscall.ENOENT) || a.Errno == int(syscall.ECONNREFUSED)) {
			return RuleSockets, true
		}
		if a.Op == OpConnect && p.asks && a.Errno == int(syscall.EPERM) { // no file's mode makes it
			return RuleSockets, true
		}
		if strings.HasPrefix(path, "@") && (refused || a.Errno == int(syscall.ECONNREFUSED)) {
			return RuleSockets, a.Op == OpConnect && p.Mode != sandboxfile.Observe
		}
		return "", false
	}
	if p.Network.Mode == sandboxfile.NetHost {
		return "", false
	}
	at, err := netip.ParseAddrPort(a.Target)
	if err != nil {
		return "", false
	}
	unreachable := a.Errno == int(syscall.ENETUNREACH) || a.Errno == int(syscall.EHOSTUNREACH) ||
		a.Errno == int(syscall.EADDRNOTAVAIL)
	if !at.Addr().Unmap().IsLoopback() || p.Network.Mode == sandboxfile.NetNone {
		return RuleNetworkMode, refused || unreachable
	}
	return "", false
}

// Shared reports whether a process outside can have bound the socket that the command reached by an absolute path, and
// no rule of the policy names it.
func (p *Profile) Shared(path string) bool {
	switch d := p.Plan.Path(path); d.Access {
	case AccessRead, AccessWrite:
		is := func(a Path) bool { return a.Path == path }
		return p.Mode != sandboxfile.Observe && !slices.Contains(p.shown, path) && !slices.ContainsFunc(p.AllowRead, is)
	}
	return false
}

// Rules lists the profile's rules, each once. A rule's id is its position, counted from 1.
func (p *Profile) Rules() []string {
	rules := []string{RuleMode, RuleNetworkMode, RuleSockets, ruleEvidence, ruleTests, ruleProtected}
	seen := map[string]bool{}
	for _, r := range rules {
		seen[r] = true
	}
	add := func(rule string) {
		if !seen[rule] {
			seen[rule] = true
			rules = append(rules, rule)
		}
	}
	for _, l := range [][]Path{p.DenyRead, p.DenyWrite} {
		for _, d := range l {
			add(d.Rule)
		}
	}
	if p.Mode != sandboxfile.Observe {
		for _, c := range callClasses {
			add(c.rule())
		}
	}
	return rules
}

// RuleID returns a rule's id; 0 if the profile does not have the rule. It is not safe for concurrent use.
func (p *Profile) RuleID(rule string) uint64 {
	if p.ids == nil {
		p.ids = map[string]uint64{}
		for i, r := range p.Rules() {
			p.ids[r] = uint64(i + 1)
		}
	}
	return p.ids[rule]
}

// Reach keeps the runner's files, sockets and logs reachable, whatever else the profile hides. Call it before the
// profile is applied.
func (p *Profile) Reach(paths ...string) {
	for _, path := range paths {
		p.AllowRead = append(p.AllowRead, Path{path, ruleReach})
		p.sockets = slices.DeleteFunc(p.sockets, func(s Path) bool { return s.Path == path })
	}
	_ = p.settle() // these rules conflict with none
}

// forwarded returns the ports inside that are forwarded to the same port on the host: those that the policy allows by
// name, with the host to connect to. So a program reaches a server on localhost even if it ignores proxies.
func (n NetProfile) forwarded() map[int]string {
	ports := map[int]string{}
	for _, text := range n.AllowedDomains {
		d, err := sandboxfile.ParseDomain(text, false)
		switch {
		case err != nil || d.Port == 0 || d.Port == proxyPort:
		case d.Name == "localhost" && !d.Sub:
			ports[d.Port] = "localhost"
		case d.Addr == loopback4 && ports[d.Port] == "":
			ports[d.Port] = d.Addr.String()
		}
	}
	return ports
}

// Allowing says how to allow a connection that a rule of this profile denied, usually as a line for the policy.
func (p *Profile) Allowing(target, rule string) string {
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		if strings.HasPrefix(path, "@") {
			return "choose network: {mode: host} in the policy: the socket is an abstract one"
		}
		return fmt.Sprintf("add to the policy: network: {allowUnixSockets: [%q]}", path)
	}
	switch {
	case strings.HasPrefix(rule, "network.deniedDomains"):
		return "remove " + rule + " from the policy"
	case rule == rulePrivate:
		return "add the address itself to network.allowedDomains: the name leads to an address that is not public"
	case rule == ruleServerName:
		return "have the program send only TLS or HTTP for the host that it asked the proxy for"
	case strings.HasSuffix(target, ":53"):
		return "list the hosts that the command needs in network.allowedDomains: the proxy looks names up, and " +
			"the command cannot"
	case p.Network.Mode == sandboxfile.NetAllowlist:
		return fmt.Sprintf("add to the policy: network: {allowedDomains: [%q]}", target)
	}
	return fmt.Sprintf("add to the policy: network: {mode: allowlist, allowedDomains: [%q]}", target)
}

// AllowingWrite says what would allow a write that a rule of the profile denied. It is empty if nothing would.
func (p *Profile) AllowingWrite(target, rule string) string {
	switch {
	case rule == ruleEvidence, rule == ruleTests:
		return ""
	case rule == ruleHomeLimit:
		return "set limits: {home: SIZE} in the policy to more than the file's size"
	case rule == ruleProtected: // allowed by its own name alone
		protected := p.Plan.Path(target)
		if protected.Access.changeable() {
			return "name each protected path in it in filesystem.allowWrite of the policy; assay-run --dry-run " +
				"lists them"
		}
		target = protected.Target
	case rule == RuleMode:
		target = narrow(target, p.home)
	default:
		return "remove " + rule + " from the policy"
	}
	mode := ""
	if p.Mode != sandboxfile.WorkspaceWrite {
		mode = "mode: workspace-write and "
	}
	return fmt.Sprintf("add to the policy: %sfilesystem: {allowWrite: [%q]}", mode, target)
}

// Replace gives the command the directory from in place of the directory at, which the command does not see. The
// command may write to from, even in mode read-only: rules about paths in it have no effect. Call it before the profile
// is applied, once for each directory.
func (p *Profile) Replace(at, from string) {
	p.replaced = append(p.replaced, shim.Place{Path: at, As: shim.Writable, From: from, Flat: true})
	p.DenyWrite = slices.DeleteFunc(p.DenyWrite, func(d Path) bool { return schema.Below(d.Path, at) })
	if p.obeyed != nil { // nothing of it is copied
		p.obeyed.Configs = slices.DeleteFunc(p.obeyed.Configs, func(path string) bool { return schema.Below(path, at) })
	}
	_ = p.settle() // fewer rules conflict less
}

// Hide hides existing paths without symbolic links from the command as Context.Evidence does. Call it before the
// profile is applied.
func (p *Profile) Hide(paths []string) error {
	for _, path := range paths {
		p.DenyRead = append(p.DenyRead, Path{path, ruleEvidence})
		p.DenyWrite = slices.DeleteFunc(p.DenyWrite, func(d Path) bool { return schema.Below(d.Path, path) })
		if p.obeyed != nil { // the command cannot change it, and nothing of it is copied
			p.obeyed.Configs = slices.DeleteFunc(p.obeyed.Configs, func(c string) bool { return schema.Below(c, path) })
		}
	}
	return p.settle()
}

// ShowToChecks names paths of Context.Evidence that checks may read.
func (p *Profile) ShowToChecks(paths []string) { p.hidden = paths }

// Insist makes the command start only if every layer is available, whatever the settings say. Call it before the
// profile is applied.
func (p *Profile) Insist() { p.OnUnavailable, p.insists = sandboxfile.Fail, true }

// replaces reports whether a path lies in what Replace replaced.
func (p *Profile) replaces(path string) bool {
	return slices.ContainsFunc(p.replaced, func(r shim.Place) bool { return schema.Below(path, r.Path) })
}

// restore undoes Replace, and shows checks what they may read.
func (p *Profile) restore() {
	if p.replaced == nil && p.hidden == nil {
		return
	}
	p.replaced = nil
	p.DenyRead = slices.DeleteFunc(slices.Clone(p.DenyRead), func(d Path) bool {
		return d.Rule == ruleEvidence && slices.Contains(p.hidden, d.Path)
	})
	_ = p.settle()
}

// bringTests shows the directories with tests, which can only be read.
func (p *Profile) bringTests() {
	for _, d := range p.DenyRead {
		if d.Rule == ruleTests {
			p.tests = append(p.tests, d)
		}
	}
	if len(p.tests) == 0 {
		return
	}
	p.DenyRead = slices.DeleteFunc(slices.Clone(p.DenyRead), func(d Path) bool { return d.Rule == ruleTests })
	for _, d := range p.tests {
		if p.AllowRead = append(slices.Clone(p.AllowRead), d); p.writable(d.Path) {
			p.DenyWrite = append(slices.Clone(p.DenyWrite), d)
		}
	}
	_ = p.settle() // fewer rules conflict less
}

// As is p for a command of another user.
func (p *Profile) As(u *User) *Profile {
	as := *p
	as.User = u
	return &as
}

// claims are all that the profile's rules say.
func (p *Profile) claims() []claim {
	root := AccessRead
	if p.open {
		root = AccessWrite
	}
	all := []claim{{Path: Path{"/", RuleMode}, says: root}}
	rank := func(r Path) int {
		switch {
		case r.Rule == RuleMode || r.Rule == ruleGit || r.Rule == "strict":
			return rankMode
		case r.Rule == ruleSecrets || r.Rule == ruleHomeLimit:
			return rankDefault
		case r.Rule == ruleReach || r.Rule == RuleSockets:
			return rankRunner
		case p.patterns[r]:
			return rankPattern
		}
		return rankRule
	}
	if p.Mode != sandboxfile.Observe {
		all = append(all, claim{Path: Path{p.Dir, ruleWorkdir}, says: AccessRead},
			claim{Path: Path{"/dev", ruleDevices}, rank: rankPrivate, says: AccessPrivate},
			claim{Path: Path{"/dev/shm", ruleDevices}, rank: rankPrivate, says: AccessTemporary})
	}
	all = append(all, p.homeClaims()...)
	for _, r := range p.Write {
		all = append(all, claim{Path: r, rank: rank(r), says: AccessWrite})
	}
	for _, r := range p.DenyWrite {
		all = append(all, claim{Path: r, rank: rank(r), says: AccessRead, keep: true})
	}
	for _, r := range p.AllowRead {
		c := claim{Path: r, rank: rank(r), says: AccessRead}
		if r.Rule == ruleReach {
			c.says = AccessWrite
		}
		all = append(all, c)
	}
	for _, r := range p.DenyRead {
		c := claim{Path: r, rank: rank(r), says: AccessNone}
		if r.Rule == ruleEvidence || r.Rule == ruleTests {
			c.rank = rankEvidence
		}
		all = append(all, c)
	}
	for _, r := range p.Private {
		c := claim{Path: r, rank: rankPrivate, says: AccessPrivate}
		if r.Rule == rulePrivateTmp {
			if c.rank = rankTemporary; p.Mode != sandboxfile.ReadOnly {
				c.says = AccessTemporary
			}
		}
		all = append(all, c)
	}
	return all
}

// settle makes the plan. The error names rules that cannot hold together.
func (p *Profile) settle() error {
	by := map[string][]claim{}
	for _, c := range p.claims() {
		by[c.Path.Path] = append(by[c.Path.Path], c)
	}
	plan := &Plan{Paths: make([]Effect, 0, len(by)), at: make(map[string]int, len(by))}
	var above []level
	for _, path := range slices.SortedFunc(maps.Keys(by), comparePaths) {
		for len(above) > 0 && !schema.Below(path, above[len(above)-1].path) {
			above = above[:len(above)-1]
		}
		l := level{path: path}
		outer := level{access: AccessRead}
		if len(above) > 0 {
			outer = above[len(above)-1]
			l.read, l.write = outer.read, outer.write
		}
		if err := l.decide(by[path], outer, p.exact); err != nil {
			return err
		}
		if path == p.Dir && l.access == AccessNone {
			return fmt.Errorf("%s and the working directory cannot hold together: the rule hides %s, where the "+
				"command starts; remove the rule, or start the command elsewhere", l.read.Rule, l.read.Path.Path)
		}
		d := l.decision(by[path], outer)
		d.changes = d.changes && path != "/"
		plan.at[path] = len(plan.Paths)
		plan.Paths = append(plan.Paths, d)
		above = append(above, l)
	}
	p.Plan = plan
	p.planOthers()
	p.ids = nil
	return nil
}

// planOthers decides about everything but paths.
func (p *Profile) planOthers() {
	plan := p.Plan
	plan.Sockets, plan.Devices, plan.Hosts, plan.Calls = []Effect{}, []Effect{}, []Effect{}, []Effect{}
	if p.Mode == sandboxfile.Observe {
		return
	}
	for i, path := range p.Network.UnixSockets {
		plan.Sockets = append(plan.Sockets, Effect{Target: path, Access: AccessConnect,
			Rule: fmt.Sprintf("network.allowUnixSockets[%d]", i)})
	}
	for _, s := range p.sockets {
		plan.Sockets = append(plan.Sockets, Effect{Target: s.Path, Access: AccessNone, Rule: s.Rule})
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "pts"} {
		plan.Devices = append(plan.Devices, Effect{Target: "/dev/" + name, Access: AccessWrite, Rule: RuleMode})
	}
	for i, d := range p.Network.DeniedDomains {
		plan.Hosts = append(plan.Hosts, Effect{Target: d, Access: AccessNone,
			Rule: fmt.Sprintf("network.deniedDomains[%d]", i)})
	}
	for i, d := range p.Network.AllowedDomains {
		plan.Hosts = append(plan.Hosts, Effect{Target: d, Access: AccessConnect,
			Rule: fmt.Sprintf("network.allowedDomains[%d]", i)})
	}
	rest := Effect{Target: "*", Access: AccessNone, Rule: RuleNetworkMode}
	if p.Network.Mode == sandboxfile.NetHost {
		rest.Access = AccessConnect
	}
	plan.Hosts = append(plan.Hosts, rest)
	for _, e := range plan.Paths {
		if e.changes && e.Access.changeable() && e.Rule != ruleReach {
			plan.Apart = append(plan.Apart, e.Target)
		}
	}
	for _, c := range callClasses {
		plan.Calls = append(plan.Calls, Effect{Target: c.name, Access: AccessNone, Rule: c.rule()})
	}
}

// Explains returns what applies to a path as a user writes it: relative to the working directory, and with symbolic
// links. What does not exist yet is looked for in the directory that will contain it.
func (p *Profile) Explains(path string) (Effect, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.Dir, path)
	}
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		switch {
		case err == nil:
			e := p.Plan.Path(filepath.Join(real, rest))
			e.Target = path
			return e, nil
		case errors.Is(err, fs.ErrNotExist) && at != "/":
			rest = filepath.Join(filepath.Base(at), rest)
		default:
			return Effect{}, err
		}
	}
}
