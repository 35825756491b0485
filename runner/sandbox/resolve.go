package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Context is where Settings take effect.
type Context struct {
	// Dir is the command's working directory, absolute.
	Dir string
	// Home is the home directory of the user that runs this; empty where there is
	// none. A user that the settings name has their own.
	Home string
	// Env is the command's environment before the policy's.
	Env []string
	// Evidence are directories that the command must not reach in any mode but
	// Observe. They exist.
	Evidence []string
	// Protect are files that it must not write, such as the policy itself.
	Protect []string
	// Reach are files and sockets of the runner's that it needs, and may write.
	Reach []string
	// IsolatePID asks for a PID namespace in every mode.
	IsolatePID bool
	// NoTyping refuses to put input into a terminal; see CanType.
	NoTyping bool
}

// maxMatches bounds the files that one pattern stands for.
const maxMatches = 10_000

// Resolve says what s means in c. Paths are taken with their symbolic links
// followed, as they are now: what is created or renamed later changes nothing.
func (s *Settings) Resolve(c Context) (*Profile, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("working directory %q: the path is not absolute", c.Dir)
	}
	p := &Profile{
		Mode: s.EffectiveMode(), OnUnavailable: s.OnUnavailable, Dir: c.Dir, PIDs: c.IsolatePID, NoTyping: c.NoTyping, env: s.Env, open: s.unrestricted,
		depth: cmp.Or(s.searchDepth, searchDepth),
		Write: []Path{}, DenyWrite: []Path{}, DenyRead: []Path{}, AllowRead: []Path{}, Private: []Path{}, Absent: []Path{},
	}
	if p.OnUnavailable == "" {
		p.OnUnavailable = Fail
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
	if p.Mode == Observe {
		p.open = true
		return p, nil
	}
	p.PIDs = true
	if !p.open {
		if err := p.files(s, c); err != nil {
			return nil, err
		}
	}
	for _, dir := range c.Evidence {
		real, err := filepath.Abs(dir)
		if err == nil {
			real, err = filepath.EvalSymlinks(real)
		}
		if err != nil {
			return nil, fmt.Errorf("evidence directory: %w", err)
		}
		p.DenyRead = append(p.DenyRead, Path{real, "evidence"})
	}
	if err := p.private(s, c); err != nil {
		return nil, err
	}
	p.DenyRead = slices.DeleteFunc(p.DenyRead, func(d Path) bool { return d.Path == "/" })
	return p, nil
}

func (p *Profile) network(s *Settings) {
	n := s.Network
	if n == nil {
		n = &Network{}
	}
	p.Network = NetProfile{
		Mode: s.NetworkMode(), AllowedDomains: list(n.AllowedDomains), DeniedDomains: list(n.DeniedDomains),
		LocalPorts: list(n.AllowLocalPorts), UnixSockets: list(n.AllowUnixSockets), reasons: n.reasons,
	}
}

func (p *Profile) environment(e *Env) {
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

// files fills in the lists of paths.
func (p *Profile) files(s *Settings, c Context) error {
	f := s.Filesystem
	if f == nil {
		f = &Filesystem{}
	}
	if p.Mode == WorkspaceWrite {
		roots := []Path{}
		if !s.exact {
			roots = append(roots, Path{c.Dir, "mode"}, Path{"/tmp", "mode"})
			if t := lookup(c.Env, "TMPDIR"); filepath.IsAbs(t) {
				roots = append(roots, Path{t, "mode"})
			}
		}
		for i, path := range f.AllowWrite {
			roots = append(roots, Path{path, fmt.Sprintf("filesystem.allowWrite[%d]", i)})
		}
		if err := p.expand(&p.Write, roots, c); err != nil {
			return err
		}
	} else if len(f.AllowWrite) > 0 {
		return errors.New("filesystem.allowWrite: nothing is writable in mode read-only; omit it, or choose workspace-write")
	}
	for _, l := range []struct {
		into  *[]Path
		key   string
		paths []string
	}{{&p.DenyWrite, "denyWrite", f.DenyWrite}, {&p.DenyRead, "denyRead", f.DenyRead}, {&p.AllowRead, "allowRead", f.AllowRead}} {
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

// expand adds what paths stand for to into, without symbolic links.
func (p *Profile) expand(into *[]Path, paths []Path, c Context) error {
	for _, named := range paths {
		path, err := absolute(named.Path, c)
		if err != nil {
			return fmt.Errorf("%s: %w", named.Rule, err)
		}
		path = strings.TrimSuffix(strings.TrimSuffix(path, "/**"), "/*")
		found := []string{path}
		if strings.ContainsAny(path, "*?[{") {
			if _, err := os.Lstat(path); err != nil { // not a file that is named so
				if found, err = doublestar.FilepathGlob(path, doublestar.WithNoFollow()); err != nil {
					return fmt.Errorf("%s: %q: %w", named.Rule, named.Path, err)
				}
				if len(found) > maxMatches {
					return fmt.Errorf("%s: %q stands for %d files; at most %d are allowed", named.Rule, named.Path, len(found), maxMatches)
				}
				if len(found) == 0 {
					p.Absent = append(p.Absent, Path{path, named.Rule})
				}
			}
		}
		for _, f := range found {
			real, err := filepath.EvalSymlinks(f)
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
				p.Absent = append(p.Absent, Path{f, named.Rule})
			case err != nil:
				return fmt.Errorf("%s: %w", named.Rule, err)
			case real != f && p.swappable(f):
				return fmt.Errorf("%s: %s is a symbolic link that the command could replace; name what it points to, %s", named.Rule, f, real)
			default:
				*into = append(*into, Path{real, named.Rule})
			}
		}
	}
	return nil
}

// swappable tells whether path goes through a symbolic link that lies in a
// directory which the command may write.
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

// writable tells whether the command may write below path, by Write alone.
func (p *Profile) writable(path string) bool {
	return slices.ContainsFunc(p.Write, func(w Path) bool { return Below(path, w.Path) })
}

// Below tells whether path is dir or in it. Both are absolute and clean.
func Below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
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

// outermost are the paths that are not below another, sorted.
func outermost(paths []string) []string {
	slices.Sort(paths)
	var out []string
	for _, p := range slices.Compact(paths) {
		if !slices.ContainsFunc(out, func(o string) bool { return Below(p, o) }) {
			out = append(out, strings.TrimSuffix(p, "/"))
		}
		if p == "/" {
			return []string{"/"}
		}
	}
	return out
}
