package sandboxfile

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Modes of a sandbox.
const (
	Observe        = "observe"         // nothing is restricted
	ReadOnly       = "read-only"       // nothing can be written except the standard streams
	WorkspaceWrite = "workspace-write" // the working directory and temporary files can be written
)

// Modes lists the modes.
var Modes = []string{Observe, ReadOnly, WorkspaceWrite}

// Network modes.
const (
	NetNone      = "none"
	NetLoopback  = "loopback"  // a network namespace of its own
	NetAllowlist = "allowlist" // that, and a proxy to the allowed domains
	NetHost      = "host"      // unrestricted
)

// What the command's home directory is in a sandbox. Mode observe restricts nothing, so the home is real there.
const (
	HomePrivate = schema.HomePrivate
	HomeReal    = schema.HomeReal
)

// Homes lists the values of Settings.Home. The empty value means HomePrivate where that is possible.
var Homes = []string{HomePrivate, HomeReal}

// What happens if a layer that the policy needs is unavailable.
const (
	Fail    = "fail"    // the command does not start
	Degrade = "degrade" // it starts, and the report says what is not enforced
)

// Settings are the sandbox's keys in a policy file. Nil and empty mean that the file does not set them.
type Settings struct {
	Mode          string      `json:"mode"`
	OnUnavailable string      `json:"on_unavailable"`
	Filesystem    *Filesystem `json:"filesystem"`
	Network       *Network    `json:"network"`
	Env           *Env        `json:"env"`
	Limits        *Limits     `json:"limits"`
	// User is a name, a uid, or uid:gid.
	User Scalar `json:"user"`
	// Home is one of Homes, or empty.
	Home string `json:"home"`
	// HomeLayer is a directory that keeps the layer of a private home for later runs. No policy can set it.
	HomeLayer string `json:"-"`
	// Login is a file below "~/" in which the command keeps a login that it renews: what it wrote there is copied from
	// a private home to the real one, if the file is there. Hidden are more paths like those of Secrets.
	Login  string   `json:"-"`
	Hidden []string `json:"-"`

	// What follows is only set by the formats of other sandboxes. Exact: the file lists all writable paths. GitConfig
	// allows writing .git/config, Sockets every unix socket. Unrestricted does not restrict the file system.
	Exact        bool `json:"-"`
	GitConfig    bool `json:"-"`
	Sockets      bool `json:"-"`
	Unrestricted bool `json:"-"`
}

// Filesystem lists paths: absolute, below ~, or relative to the working directory. DenyWrite takes precedence over
// AllowWrite, and AllowRead over DenyRead.
type Filesystem struct {
	AllowWrite []string `json:"allowWrite"`
	DenyWrite  []string `json:"denyWrite"`
	DenyRead   []string `json:"denyRead"`
	AllowRead  []string `json:"allowRead"`
	// PrivateTmp gives the run its own /tmp, in memory.
	PrivateTmp bool `json:"privateTmp"`
}

// Network says what the command may reach.
type Network struct {
	// Mode is empty for the default: NetAllowlist if there are allowed domains, otherwise NetLoopback.
	Mode string `json:"mode"`
	// AllowedDomains are names, names below one (*.example.org), or addresses, with a port or for all ports.
	// DeniedDomains take precedence.
	AllowedDomains []string `json:"allowedDomains"`
	DeniedDomains  []string `json:"deniedDomains"`
	// AllowLocalPorts are ports inside that are reachable on the host's loopback address.
	AllowLocalPorts []int `json:"allowLocalPorts"`
	// AllowUnixSockets are paths of sockets that stay reachable.
	AllowUnixSockets []string `json:"allowUnixSockets"`

	// Reasons explain denials to programs that ask for a denied domain, by entry.
	Reasons map[string]string `json:"-"`
}

// Env says which variables the command gets. Names may be patterns with *.
type Env struct {
	// Pass lists the variables that pass; nil passes all.
	Pass *[]string         `json:"pass"`
	Set  map[string]string `json:"set"`
	Drop []string          `json:"drop"`
}

// Limits are a run's limits. Zero means no limit.
type Limits struct {
	Memory config.Bytes     `json:"memory"`
	Pids   int64            `json:"pids"` // processes and threads
	CPUs   config.MilliCPUs `json:"cpus"`
	Wall   time.Duration    `json:"wall"` // of the command
	// Home is the largest file of a private home, in bytes, that the command can change, since a change copies the
	// file. The command can only read larger files. Zero means DefaultHomeLimit.
	Home config.Bytes `json:"home"`
}

// DefaultHomeLimit replaces a Limits.Home of zero. It applies only to the homeLooked paths nearest to the home.
const DefaultHomeLimit config.Bytes = 2 << 30

// check returns what is wrong with l, or nil.
func (l *Limits) check() error {
	if l == nil {
		return nil
	}
	for _, one := range []struct {
		key      string
		negative bool
	}{{"memory", l.Memory < 0}, {"pids", l.Pids < 0}, {"cpus", l.CPUs < 0}, {"wall", l.Wall < 0},
		{"home", l.Home < 0}} {
		if one.negative {
			return fmt.Errorf("limits.%s: it is negative; omit the key for no limit", one.key)
		}
	}
	return nil
}

// Scalar is a string or a number, as written.
type Scalar string

// UnmarshalJSON accepts a string or a number.
func (s *Scalar) UnmarshalJSON(b []byte) error {
	switch jsontext.Value(b).Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, b)
		*s = Scalar(text)
		return err
	case '0':
		*s = Scalar(b)
		return nil
	}
	return errors.New("found neither a string nor a number")
}

// Check returns what is wrong with s, or nil. The caller has decoded s strictly.
func (s *Settings) Check() error {
	one := func(key, value string, allowed ...string) error {
		if value == "" || slices.Contains(allowed, value) {
			return nil
		}
		return fmt.Errorf("%s: found %q; allowed are %s", key, value, strings.Join(allowed, ", "))
	}
	errs := []error{
		one("mode", s.Mode, Modes...),
		one("on_unavailable", s.OnUnavailable, Fail, Degrade),
		one("home", s.Home, Homes...),
	}
	if n := s.Network; n != nil {
		errs = append(errs, one("network.mode", n.Mode, NetNone, NetLoopback, NetAllowlist, NetHost), n.check())
	}
	if f := s.Filesystem; f != nil {
		errs = append(errs, f.check())
	}
	if e := s.Env; e != nil {
		errs = append(errs, e.check())
	}
	errs = append(errs, s.Limits.check())
	if s.Mode == Observe && (s.Filesystem != nil || s.Network != nil) {
		errs = append(errs, errors.New("mode: observe restricts nothing; omit filesystem and network, or "+
			"choose another mode"))
	}
	if (s.Home == HomePrivate || s.HomeLayer != "") && s.EffectiveMode() == Observe {
		errs = append(errs, errors.New("home: private needs mode read-only or workspace-write"))
	}
	if s.Home == HomeReal && s.HomeLayer != "" {
		errs = append(errs, errors.New("home: real has no layer to keep"))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *Filesystem) check() error {
	for _, list := range []struct {
		key   string
		paths []string
	}{{"allowWrite", f.AllowWrite}, {"denyWrite", f.DenyWrite}, {"denyRead", f.DenyRead}, {"allowRead", f.AllowRead}} {
		for i, p := range list.paths {
			switch {
			case p == "":
				return fmt.Errorf("filesystem.%s[%d]: the path is empty", list.key, i)
			case strings.ContainsRune(p, 0):
				return fmt.Errorf("filesystem.%s[%d]: the path has a NUL byte", list.key, i)
			case strings.HasPrefix(p, "~") && p != "~" && !strings.HasPrefix(p, "~/"):
				return fmt.Errorf("filesystem.%s[%d]: %q: only ~ and ~/ are known; write the other home directory out",
					list.key, i, p)
			}
		}
	}
	return nil
}

func (n *Network) check() error {
	for i, d := range n.AllowedDomains {
		if _, err := ParseDomain(d, false); err != nil {
			return fmt.Errorf("network.allowedDomains[%d]: %w", i, err)
		}
	}
	for i, d := range n.DeniedDomains {
		if _, err := ParseDomain(d, true); err != nil {
			return fmt.Errorf("network.deniedDomains[%d]: %w", i, err)
		}
	}
	if n.Mode != "" && n.Mode != NetAllowlist && len(n.AllowedDomains)+len(n.DeniedDomains) > 0 {
		return fmt.Errorf("network.mode: %s takes no domains; omit mode, or write allowlist", n.Mode)
	}
	for i, p := range n.AllowLocalPorts {
		if p < 1 || p > 65535 {
			return fmt.Errorf("network.allowLocalPorts[%d]: found %d; a port is 1 to 65535", i, p)
		}
	}
	for i, p := range n.AllowUnixSockets {
		if p == "" || strings.ContainsRune(p, 0) {
			return fmt.Errorf("network.allowUnixSockets[%d]: %q is not a path", i, p)
		}
	}
	return nil
}

func (e *Env) check() error {
	var pass []string
	if e.Pass != nil {
		pass = *e.Pass
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"pass", pass}, {"drop", e.Drop}} {
		for i, n := range list.names {
			if n == "" || strings.ContainsAny(n, "=\x00") {
				return fmt.Errorf("env.%s[%d]: %q is not a variable's name", list.key, i, n)
			}
		}
	}
	for k, v := range e.Set {
		if k == "" || strings.ContainsAny(k, "=\x00*") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("env.set: %q cannot be a variable", k)
		}
	}
	return nil
}

// Empty reports whether s sets nothing.
func (s *Settings) Empty() bool {
	return s.Mode == "" && s.OnUnavailable == "" && s.Filesystem == nil && s.Network == nil && s.Env == nil &&
		s.Limits == nil && s.User == "" && s.Home == ""
}

// EffectiveMode is the mode of s. Without a mode, filesystem or network mean WorkspaceWrite.
func (s *Settings) EffectiveMode() string {
	switch {
	case s.Mode != "":
		return s.Mode
	case s.Filesystem != nil || s.Network != nil:
		return WorkspaceWrite
	}
	return Observe
}

// NetworkMode is the network mode in a sandbox mode.
func (s *Settings) NetworkMode() string {
	switch n := s.Network; {
	case s.EffectiveMode() == Observe:
		return NetHost
	case n == nil:
		return NetLoopback
	case n.Mode != "":
		return n.Mode
	case len(n.AllowedDomains) > 0:
		return NetAllowlist
	}
	return NetLoopback
}

// Apply returns the allowed variables of an environment, in order, and then those that Env sets. A nil Env allows
// all.
func (e *Env) Apply(env []string) []string {
	if e == nil {
		return env
	}
	var kept []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if e.Pass != nil && !matches(*e.Pass, name) || matches(e.Drop, name) {
			continue
		}
		if _, set := e.Set[name]; !set {
			kept = append(kept, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Set)) {
		kept = append(kept, name+"="+e.Set[name])
	}
	return kept
}

// matches reports whether a name matches one of the patterns. A pattern that is not a valid glob matches its own
// text.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok || err != nil && p == name
	})
}
