//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Where the sets are pinned that runs share: in the host's bpffs, or in one of our
// own where none is mounted. Everything about them is there, locks included, so
// that whoever sees the one sees the other, in whatever container.
const (
	hostBPFFS = "/sys/fs/bpf"
	ownBPFFS  = "/run/assay-run/bpf"
	homeName  = "assay-run"

	// Of a set's name, which is a digest of the build and the kernel. bpffs takes
	// no dots.
	lockSuffix = "_lock" // a directory that is locked, with one for each slot
	keepSuffix = "_keep" // exists while somebody asked for the set to be kept
	newInfix   = "_new_" // being made by the process that is named next
	oldInfix   = "_old_" // being removed
)

// pinDir is where the sets of one bpffs are, and which of them is this build's.
type pinDir struct {
	home string // the directory of all sets
	name string // of this build's set
}

func (p pinDir) dir() string  { return filepath.Join(p.home, p.name) }
func (p pinDir) lock() string { return p.dir() + lockSuffix }
func (p pinDir) keep() string { return p.dir() + keepSuffix }

// findPinDir finds where sets are pinned, and makes it. An error says why this
// process cannot share.
func findPinDir() (pinDir, error) {
	if os.Geteuid() != 0 {
		return pinDir{}, &PlaceError{Reason: "only root can share an observer", Remedy: "run as root"}
	}
	name, err := buildName()
	if err != nil {
		return pinDir{}, err
	}
	root := hostBPFFS
	if !isBPFFS(root) {
		if root, err = mountBPFFS(); err != nil {
			return pinDir{}, err
		}
	}
	p := pinDir{home: filepath.Join(root, homeName), name: name}
	if err := os.Mkdir(p.home, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return pinDir{}, &PlaceError{"the BPF file system cannot be used", "make it writable: mount -o remount,rw " + root, err}
	}
	return p, ownedByRoot(p.home)
}

// inPlace tells whether this build's set is pinned, without making anything.
func inPlace() bool {
	name, err := buildName()
	if err != nil {
		return false
	}
	for _, root := range []string{hostBPFFS, ownBPFFS} {
		if isBPFFS(root) {
			_, err := os.Lstat(pinDir{home: filepath.Join(root, homeName), name: name}.dir())
			return err == nil
		}
	}
	return false
}

// ownedByRoot: bpffs lets everybody make directories.
func ownedByRoot(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o077 != 0 {
		return &PlaceError{Reason: fmt.Sprintf("%s is not a directory that only root can write to (uid %d, mode %#o): remove it", dir, st.Uid, st.Mode),
			Remedy: "remove " + dir}
	}
	return nil
}

func isBPFFS(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.BPF_FS_MAGIC
}

// mountBPFFS mounts a BPF file system of our own, or finds that of an earlier run.
func mountBPFFS() (string, error) {
	if err := os.MkdirAll(ownBPFFS, 0o700); err != nil {
		return "", noBPFFS("", err)
	}
	parent, err := lockDir(filepath.Dir(ownBPFFS), unix.LOCK_EX) // two mounts would lie on each other
	if err != nil {
		return "", err
	}
	defer parent.Close()
	if isBPFFS(ownBPFFS) {
		return ownBPFFS, nil
	}
	if err := unix.Mount("bpf", ownBPFFS, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return "", noBPFFS(" on "+ownBPFFS, err)
	}
	return ownBPFFS, nil
}

func noBPFFS(where string, err error) error {
	return &PlaceError{"no BPF file system is mounted on " + hostBPFFS + ", and none can be mounted" + where,
		"mount one: mount -t bpf bpf " + hostBPFFS, err}
}

// lockDir opens a directory and locks it, as flock(2) does. The lock lasts until
// the last descriptor of the file is closed.
func lockDir(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// lockMade makes a directory where there is none, and locks it. It is certain that
// nobody removed it meanwhile.
func lockMade(path string, how int) (*os.File, error) {
	for {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		f, err := lockDir(path, how)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var have, want unix.Stat_t
		if unix.Fstat(int(f.Fd()), &have) == nil && unix.Lstat(path, &want) == nil && have.Ino == want.Ino && have.Dev == want.Dev {
			return f, nil
		}
		f.Close()
	}
}

// buildName is a digest of this build, the kernel and what the maps' sizes depend on.
var buildName = sync.OnceValues(func() (string, error) {
	id, err := buildID()
	if err != nil {
		return "", fmt.Errorf("cannot identify this build: %w", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, s := range [][]byte{id, u.Release[:], u.Version[:], u.Machine[:], []byte(strconv.Itoa(cpus))} {
		h.Write(s)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
})

// buildID is the linker's id of this program, or a digest of all of it where it was
// linked without.
func buildID() ([]byte, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if e, err := elf.NewFile(f); err == nil {
		if s := e.Section(".note.go.buildid"); s != nil {
			if id, err := s.Data(); err == nil && len(bytes.Trim(id, "\x00")) > 32 {
				return id, nil
			}
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
