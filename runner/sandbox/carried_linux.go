package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/startup"
)

// carriedAt is where the command has its copies of the configuration of repositories. A file that is a mount can be
// replaced by nobody, and git replaces its configuration to change it. But it follows a symbolic link to the file that
// it replaces: so over each configuration there is a symbolic link to a copy.
const carriedAt = "/dev/.git-config"

// carried are the copies of one command.
type carried struct {
	layer *homeLayer // has their directory
	dir   string
	files []carriedFile
}

type carriedFile struct {
	path   string
	dir    *os.Root // the directory with the configuration, whatever its name is later
	before []byte
	owner  *syscall.Stat_t
}

// copy is the name of a file's copy, and link that of the symbolic link.
func (c *carried) copy(i int) string {
	return filepath.Join(c.dir, "copies", strconv.Itoa(i), "config")
}
func (c *carried) link(i int) string { return filepath.Join(c.dir, "links", strconv.Itoa(i)) }

// openCarried makes the copies. Where that is impossible, the configuration is read-only.
func (s *Sandbox) openCarried(opt Options) error {
	p := s.profile
	p.links, p.copies = nil, ""
	if p.obeyed == nil || p.exact || p.User != nil && os.Geteuid() != 0 {
		return nil
	}
	c := &carried{}
	for _, path := range p.obeyed.Configs {
		path, err := filepath.EvalSymlinks(path)
		if err != nil || slices.ContainsFunc(c.files, func(f carriedFile) bool { return f.path == path }) {
			continue
		}
		if d := p.Plan.Path(path); d.Target != path || d.Rule != ruleProtected || d.Access != AccessRead {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		dir, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			continue
		}
		before, err := startup.ReadOpen(dir.OpenFile(filepath.Base(path), startup.ReadFlags, 0))
		if err != nil {
			dir.Close()
			continue
		}
		c.files = append(c.files, carriedFile{path, dir, before, info.Sys().(*syscall.Stat_t)})
	}
	if len(c.files) == 0 {
		return nil
	}
	s.carried = c
	for _, dir := range p.layerDirs(opt.Layers, p.Dir) {
		l, err := newLayer(dir, p.Dir, opt.Inherit)
		if err != nil {
			continue
		}
		c.layer, c.dir = l, l.dir
		if err := c.write(p); err != nil {
			return errors.Join(err, c.close())
		}
		p.links, p.copies = map[string]string{}, filepath.Join(c.dir, "copies")
		for i, f := range c.files {
			p.links[f.path] = c.link(i)
		}
		return nil
	}
	s.carried = nil
	return c.close()
}

// write writes the copies, for the command's user.
func (c *carried) write(p *Profile) error {
	for _, dir := range []string{"copies", "links"} {
		if err := os.Mkdir(filepath.Join(c.dir, dir), 0o755); err != nil {
			return err
		}
	}
	for i, f := range c.files {
		at := filepath.Dir(c.copy(i))
		inside := filepath.Join(carriedAt, strconv.Itoa(i), "config")
		err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(c.copy(i), f.before, fs.FileMode(f.owner.Mode).Perm()),
			os.Symlink(inside, c.link(i)))
		if err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			uid, gid := int(f.owner.Uid), int(f.owner.Gid)
			if p.User != nil {
				uid, gid = p.User.UID, p.User.GID
			}
			err := errors.Join(os.Chown(at, uid, gid), os.Chown(c.copy(i), int(f.owner.Uid), int(f.owner.Gid)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Uncarried is what a command changed in its copy of a repository's configuration, and what was not brought back.
type Uncarried struct {
	Path string
	Keys []string
	Err  error // nothing was brought back
}

// Uncarried lists the configuration that the command changed in vain. It is valid after Close.
func (s *Sandbox) Uncarried() []Uncarried { return s.uncarried }

// closeCarried brings back what git wrote in ordinary work. It is called when no process of the command is left.
func (s *Sandbox) closeCarried() error {
	c := s.carried
	if c == nil {
		return nil
	}
	s.carried = nil
	copies, err := os.OpenRoot(filepath.Join(c.dir, "copies"))
	if err != nil {
		return errors.Join(err, c.close())
	}
	defer copies.Close()
	for i, f := range c.files {
		// The command may have put a link to anything there.
		after, err := startup.ReadOpen(copies.OpenFile(filepath.Join(strconv.Itoa(i), "config"), startup.ReadFlags, 0))
		if err == nil && slices.Equal(after, f.before) {
			continue
		}
		var dropped []string
		if err == nil {
			dropped, err = f.bringBack(after)
		}
		if err != nil || len(dropped) > 0 {
			s.uncarried = append(s.uncarried, Uncarried{f.path, dropped, err})
		}
	}
	return c.close()
}

// bringBack writes the configuration as git does, under its lock.
func (f *carriedFile) bringBack(after []byte) (dropped []string, err error) {
	name := filepath.Base(f.path)
	lock, err := f.dir.OpenFile(name+".lock", os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.dir.Remove(name+".lock"))
		}
	}()
	defer lock.Close()
	now, err := startup.ReadOpen(f.dir.OpenFile(name, startup.ReadFlags, 0))
	if err != nil {
		return nil, err
	}
	merged, dropped := startup.Merge(string(f.before), string(now), string(after))
	if merged == string(now) {
		return dropped, f.dir.Remove(name + ".lock")
	}
	_, err = lock.WriteString(merged)
	if os.Geteuid() == 0 {
		err = errors.Join(err, lock.Chown(int(f.owner.Uid), int(f.owner.Gid)))
	}
	if err = errors.Join(err, lock.Chmod(fs.FileMode(f.owner.Mode).Perm()), lock.Sync()); err != nil {
		return nil, fmt.Errorf("write %s.lock: %w", f.path, err)
	}
	return dropped, f.dir.Rename(name+".lock", name)
}

func (c *carried) close() error {
	var err error
	for _, f := range c.files {
		err = errors.Join(err, f.dir.Close())
	}
	if c.layer != nil {
		err = errors.Join(err, c.layer.close())
	}
	return err
}
