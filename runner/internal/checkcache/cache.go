// Package checkcache keeps what the tools of strict checks have in their caches, such as
// compiled packages, from one run to the next.
//
// Only checks of a baseline fill it: they run before the command, so nothing that the
// command wrote gets into it. It is root's alone. Each check of each contract has an entry
// of its own, and works on a copy.
package checkcache

import (
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

// Bounds of an entry. A larger one is not kept.
const (
	maxBytes = 2 << 30
	maxFiles = 200_000
)

// unused is how long an entry is kept that no baseline has used.
const unused = 30 * 24 * time.Hour

// making begins the names of entries that are being written.
const making = ".making-"

// Cache is a directory of entries. It is safe for concurrent use, also by several processes.
// A nil Cache keeps nothing.
type Cache struct {
	dir string
}

// Open returns the host's cache: $CACHE_DIRECTORY, as systemd sets it, or /var/cache/assay-run.
// It is nil unless this process is root and the directory is root's alone.
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
	return &Cache{dir}
}

// Key names the entry of a check: of a contract file, with a name and a command, run by a user.
func Key(contract, name, command string, uid int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", contract, name, command, uid))
	return hex.EncodeToString(sum[:])
}

// Load copies an entry into the directory, for a user (-1: root). It returns how many files that
// were. An entry that is missing, or that is replaced meanwhile, is none or a part.
func (c *Cache) Load(key, into string, uid, gid int) (files int) {
	if c == nil {
		return 0
	}
	files, _ = copyTree(filepath.Join(c.dir, key), into, uid, gid)
	return files
}

// Store replaces an entry by a copy of the directory, unless that has no more files than were
// loaded. No process may have the directory in use. It removes entries that are no longer used.
func (c *Cache) Store(key, from string, loaded int) error {
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
	temp, err := os.MkdirTemp(c.dir, making)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if _, err := copyTree(from, temp, -1, -1); err != nil {
		return err
	}
	if err := os.RemoveAll(entry); err != nil {
		return err
	}
	return os.Rename(temp, entry) // fails where another run was quicker
}

// prune removes entries that nobody used for long, and what a killed run was writing.
func (c *Cache) prune(now time.Time) {
	entries, _ := os.ReadDir(c.dir)
	for _, e := range entries {
		keep := unused
		if strings.HasPrefix(e.Name(), making) {
			keep = time.Hour
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > keep {
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

// errLarge is why an entry is not kept.
var errLarge = errors.New("it is too large")

// copyTree copies directories and regular files, with the times and the execute bits of files, and
// follows no links. Files with a second name are left out: that may be anybody's.
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
