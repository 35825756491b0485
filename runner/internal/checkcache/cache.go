// Package checkcache keeps the caches of strict checks' tools, such as compiled packages, from one run to the next.
//
// Only checks of a baseline fill it: they run before the command, so nothing that the command wrote gets into it.
// Only root can access it. Each check of each contract has its own entry, and works on a copy.
package checkcache

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Limits of an entry. A larger one is not kept.
const (
	maxBytes = 2 << 30
	maxFiles = 200_000
)

// unused is how long an entry is kept that no baseline uses.
const unused = 30 * 24 * time.Hour

// making is the prefix of directories in which an entry is being written. The writing process locks the directory, so
// that others notice when it was killed.
const making = ".making-"

// Cache is a directory of entries. It is safe for concurrent use, also by several processes. A nil Cache keeps
// nothing.
type Cache struct {
	dir string
}

// Open returns the host's cache: $CACHE_DIRECTORY, which systemd sets, or /var/cache/assay-run. It returns nil unless
// this process is root and only root can access the directory. It removes what killed runs were writing.
func Open() *Cache {
	if os.Geteuid() != 0 {
		return nil
	}
	top := os.Getenv("CACHE_DIRECTORY")
	if top == "" || strings.Contains(top, ":") {
		top = "/var/cache/assay-run"
	}
	dir := filepath.Join(top, "strict-checks")
	if os.MkdirAll(dir, 0o700) != nil {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
		return nil
	}
	c := &Cache{dir}
	c.free()
	return c
}

// Key returns the name of the entry for a check of a contract file, with a name and a command, run by a user.
func Key(contract, name, command string, uid int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", contract, name, command, uid))
	return hex.EncodeToString(sum[:])
}

// Load copies an entry into a directory, for a user (-1: root), and returns the number of files. If the entry is
// missing or replaced meanwhile, there may be no files, or only a part.
func (c *Cache) Load(key, into string, uid, gid int) (files int) {
	if c == nil {
		return 0
	}
	files, _ = copyTree(filepath.Join(c.dir, key), into, uid, gid)
	return files
}

// Store replaces an entry by a copy of the directory, unless that has no more files than were loaded. No process may
// be using the directory. Store removes unused entries. Before it writes, it calls outlive with the directory to
// remove if this process is killed, and with that directory's parent.
func (c *Cache) Store(key, from string, loaded int, outlive func(dir string)) error {
	if c == nil {
		return nil
	}
	entry := filepath.Join(c.dir, key)
	now := time.Now()
	_ = os.Chtimes(entry, now, now)
	c.prune(now)
	if count(from) <= loaded {
		return nil
	}
	copied, done, err := c.begin(outlive)
	if err != nil {
		return err
	}
	defer done()
	if _, err := copyTree(from, copied, -1, -1); err != nil {
		return err
	}
	if err := os.RemoveAll(entry); err != nil {
		return err
	}
	return os.Rename(copied, entry) // fails if another run was faster
}

// begin makes a directory for the copy of an entry. done removes what is left of it.
func (c *Cache) begin(outlive func(dir string)) (copied string, done func(), err error) {
	for {
		temp := filepath.Join(c.dir, making+rand.Text())
		copied = filepath.Join(temp, "of")
		outlive(copied)
		if err := os.Mkdir(temp, 0o700); err != nil {
			return "", nil, err
		}
		held, err := lock(temp, syscall.LOCK_EX)
		if err == nil {
			if err = os.Mkdir(copied, 0o700); err == nil {
				return copied, func() { os.RemoveAll(temp); held.Close() }, nil
			}
			held.Close()
		}
		os.RemoveAll(temp)
		if !errors.Is(err, fs.ErrNotExist) { // otherwise another process's free was faster than our lock
			return "", nil, err
		}
	}
}

// free removes what killed runs were writing.
func (c *Cache) free() {
	left, _ := filepath.Glob(filepath.Join(c.dir, making+"*"))
	for _, temp := range left {
		if dead, err := lock(temp, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			os.RemoveAll(temp)
			dead.Close()
		}
	}
}

// lock locks a directory until the file is closed or this process ends.
func lock(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), how)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// prune removes entries that were not used for a long time.
func (c *Cache) prune(now time.Time) {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), making) &&
			now.Sub(info.ModTime()) > unused {
			os.RemoveAll(filepath.Join(c.dir, e.Name()))
		}
	}
}

func count(dir string) (files int) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files++
		}
		return nil
	})
	return files
}

// errLarge means that an entry is too large to keep.
var errLarge = errors.New("it is too large")

// copyTree copies directories and regular files, with the times and the execute bits of files. It does not follow
// links. Files with a second name are left out, since anybody may own that name.
func copyTree(from, to string, uid, gid int) (files int, err error) {
	source, err := os.OpenRoot(from)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return 0, err
	}
	defer target.Close()
	var bytes int64
	err = fs.WalkDir(source.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case d.IsDir():
			return errors.Join(target.Mkdir(path, 0o700), target.Lchown(path, uid, gid))
		case !d.Type().IsRegular():
			return nil
		}
		n, err := copyFile(source, target, path, uid, gid)
		files++
		if bytes += n; bytes > maxBytes || files > maxFiles {
			return errLarge
		}
		return err
	})
	return files, err
}

func copyFile(source, target *os.Root, path string, uid, gid int) (int64, error) {
	in, err := source.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return 0, err
	}
	out, err := target.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|info.Mode().Perm()&0o100)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxBytes+1))
	err = errors.Join(err, out.Chown(uid, gid), out.Close())
	return n, errors.Join(err, target.Chtimes(path, info.ModTime(), info.ModTime()))
}
