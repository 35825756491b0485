//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// errNested: the outer run cannot tell our changes to what it depends on from an
// attack.
var errNested = &PlaceError{Reason: "this process is itself being observed, and must not touch the observer's files",
	Remedy: "call it outside of the run"}

// nested tells whether this process is in a session of the pinned set. It only
// reads.
func (p pinDir) nested() error {
	numbers, err := ebpf.LoadPinnedMap(filepath.Join(p.dir(), pinName("map", "numbers")), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer numbers.Close()
	ids, err := ownCgroups()
	if err != nil {
		return err
	}
	for _, id := range ids {
		var number uint32
		if numbers.Lookup(id, &number) == nil {
			return errNested
		}
	}
	return nil
}

// ownCgroups are the ids of this process's cgroup2 directory and those above it.
func ownCgroups() (ids []uint64, err error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			var fs unix.Statfs_t
			if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
				continue
			}
			for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
				var st unix.Stat_t
				if err := unix.Stat(root+dir, &st); err != nil {
					return nil, fmt.Errorf("find the cgroup of this process: %w", &os.PathError{Op: "stat", Path: root + dir, Err: err})
				}
				ids = append(ids, st.Ino)
				if dir == "/" || dir == "." {
					return ids, nil
				}
			}
		}
	}
	return nil, errors.New("cannot find the cgroup of this process")
}
