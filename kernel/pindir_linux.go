//go:build linux && (amd64 || arm64)

package kernel

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Shared sets are pinned in the host's bpffs, or in one of our own where none is mounted. Their locks are there too,
// so that every container that sees the sets sees the locks.
const (
	hostBPFFS = "/sys/fs/bpf"
	ownBPFFS  = "/run/assay-run/bpf"
	homeName  = "assay-run"

	// They follow a set's name, which is a digest of the build and the kernel. bpffs takes no dots.
	lockSuffix   = "_lock"   // a directory that is locked, with one for each slot
	keepSuffix   = "_keep"   // exists from StartObserver to StopObserver
	keeperSuffix = "_keeper" // locked by a process that keeps the set until the directory's time of modification
	newInfix     = "_new_"   // being made by the process with the id that follows
	oldInfix     = "_old_"   // being removed by the process with the id that follows
)

// pinDir is where a set is pinned.
type pinDir struct {
	home string // the directory of all sets
	name string // of the set: see buildName
}

func (p pinDir) dir() string    { return filepath.Join(p.home, p.name) }
func (p pinDir) lock() string   { return p.dir() + lockSuffix }
func (p pinDir) keep() string   { return p.dir() + keepSuffix }
func (p pinDir) keeper() string { return p.dir() + keeperSuffix }

// findPinDir returns where this build's set is pinned, and makes the directory of all sets. The error says why this
// process cannot share a set.
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
		return pinDir{}, &PlaceError{"the BPF file system cannot be used", "make it writable: mount -o remount,rw " +
			root, err}
	}
	return p, ownedByRoot(p.home)
}

// inPlace reports whether this build's set is pinned, without making anything.
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

// ownedByRoot returns an error unless the directory is root's alone: everybody can make directories in bpffs.
func ownedByRoot(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o077 != 0 {
		return &PlaceError{Reason: fmt.Sprintf("%s is not a directory that only root can write to (uid %d, "+
			"mode %#o): remove it", dir, st.Uid, st.Mode),
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

// lockMade makes a directory unless it exists, and locks it. If somebody removes it meanwhile, it starts again.
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
		if unix.Fstat(int(f.Fd()), &have) == nil && unix.Lstat(path, &want) == nil && have.Ino == want.Ino &&
			have.Dev == want.Dev {
			return f, nil
		}
		f.Close()
	}
}

// buildBytes is how much of the digest is in a name.
const buildBytes = 16

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
	return hex.EncodeToString(h.Sum(nil)[:buildBytes]), nil
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

// keepFor keeps the set for d after this session: a process waits for that time, or longer if another session asked
// for it. The caller holds the set's lock.
func (p pinDir) keepFor(d time.Duration) error {
	until := time.Now().Add(d)
	if err := os.Mkdir(p.keeper(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if st, err := os.Stat(p.keeper()); err == nil && st.ModTime().After(until) {
		until = st.ModTime()
	}
	if err := os.Chtimes(p.keeper(), until, until); err != nil {
		return err
	}
	lock, err := lockDir(p.keeper(), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if !role.Observer.Available() {
		return errors.New("this program cannot start a process that waits")
	}
	set, err := lockDir(p.lock(), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil {
		return err
	}
	defer set.Close()
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: role.Observer.Args("keep", p.home, p.name), Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, ExtraFiles: []*os.File{lock, set},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := c.Start(); err != nil {
		return err
	}
	return c.Process.Release()
}

// open opens the set, or makes and pins it, with a slot that has a ring of that size.
func (p pinDir) open(ring int) (*set, error) {
	_, err := os.Lstat(p.dir())
	if err == nil {
		return openSet(p.dir())
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	home, err := lockDir(p.home, unix.LOCK_EX) // one process at a time makes a set
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if _, err := os.Lstat(p.dir()); err == nil {
		home.Close() // or those that waited for the set would open it one after the other
		return openSet(p.dir())
	}
	p.sweepUnfinished()
	s, err := newSet(maxSlots)
	if err != nil {
		return nil, err
	}
	s.shared = true
	making := p.dir() + newInfix + strconv.Itoa(os.Getpid())
	if err = s.load(ring); err == nil {
		if s.links["sys_exit"] == nil {
			err = s.failed["sys_exit"]
		} else {
			awaitGuard()
			err = s.pin(making)
		}
	}
	if err == nil {
		if err = os.Rename(making, p.dir()); err != nil {
			err = errors.Join(err, os.RemoveAll(making))
		} else {
			s.pins, err = pinsIn(p.dir())
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// lockSlot locks a slot. It fails at once with EWOULDBLOCK if a session has it.
func (p pinDir) lockSlot(number uint32) (*os.File, error) {
	path := filepath.Join(p.lock(), strconv.Itoa(int(number)))
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return lockDir(path, unix.LOCK_EX|unix.LOCK_NB)
}

// removeIfLast removes the set whose lock is given, unless somebody else has it too or it is to be kept, and
// reports whether it did.
func (p pinDir) removeIfLast(lock *os.File) bool {
	if _, err := os.Lstat(p.keep()); err == nil {
		return false
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	p.remove()
	return true
}

// remove removes the set, whose lock the caller has alone. Without its pins it is detached. Who waits for the lock
// makes a new one.
func (p pinDir) remove() {
	old := p.dir() + oldInfix + strconv.Itoa(os.Getpid())
	if os.Rename(p.dir(), old) == nil {
		_ = os.RemoveAll(old)
	}
	_ = os.Remove(p.keeper())
	_ = os.RemoveAll(p.lock())
}

// nested returns errNested if this process is in a session of the pinned set. It changes nothing.
func (p pinDir) nested() error {
	numbers, err := ebpf.LoadPinnedMap(filepath.Join(p.dir(), pinName("map", "numbers")),
		&ebpf.LoadPinOptions{ReadOnly: true})
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

// sweepUnfinished removes what processes left that died while they made or removed a set. The caller has the lock of
// p.home.
func (p pinDir) sweepUnfinished() {
	entries, _ := os.ReadDir(p.home)
	for _, e := range entries {
		if strings.Contains(e.Name(), newInfix) {
			_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
		}
		if _, pid, old := strings.Cut(e.Name(), oldInfix); old {
			if n, err := strconv.Atoi(pid); err == nil && hasEnded(n) {
				_ = os.RemoveAll(filepath.Join(p.home, e.Name()))
			}
		}
	}
}

// errNested: the outer run could not tell our changes to its observer from an attack.
var errNested = &PlaceError{Reason: "this process is itself being observed, and must not touch the observer's files",
	Remedy: "call it outside of the run"}

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
					return nil, fmt.Errorf("find the cgroup of this process: %w",
						&os.PathError{Op: "stat", Path: root + dir, Err: err})
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

// keeperLook is how often the keeper checks whether it still has to wait.
const keeperLook = 500 * time.Millisecond

// Enter does what this process was started for as a helper, and exits; in any other process it returns at once. Only a
// program that calls it first in main can keep the shared observer after a run (Config.Keep) and free what a killed
// run left (Afterwards).
func Enter() { role.Play(map[role.Role]func([]string) int{role.Observer: observerMain}) }

// observerMain is what role.Observer does: see Enter.
func observerMain(args []string) int {
	switch {
	case len(args) == 4 && args[2] == "sweep":
		untilGone(args[3])
		if p, err := findPinDir(); err != nil || p.nested() != nil { // its run loaded its own programs
			return 0
		}
		_, _, err := Sweep()
		return exitCode(err)
	case len(args) == 4 && args[2] == "sweeper":
		return exitCode(sweepAfter(args[3]))
	case len(args) == 5 && args[2] == "keep":
		keepUntilIdle(pinDir{home: args[3], name: args[4]})
		return 0
	}
	return 125
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// Afterwards are the arguments for /proc/self/exe that free what this process leaves in the shared observer when it is
// killed; nil if Enter was not called.
func Afterwards() []string {
	if !role.Observer.Available() {
		return nil
	}
	return role.Observer.Args("sweep", strconv.Itoa(os.Getpid()))
}

// untilGone waits until the process with this id has ended: a killed process closes its end of a pipe before it gives
// up its locks. It waits a minute at most, in case the id is another process's by now.
func untilGone(id string) {
	pid, err := strconv.Atoi(id)
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for end := time.Now().Add(time.Minute); ; {
		left := max(0, time.Until(end).Milliseconds())
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left)); err != unix.EINTR {
			return
		}
	}
}

// keepUntilIdle is the keeper. Its descriptors 3 and 4 hold the locks of the keeper's directory and of the set.
func keepUntilIdle(p pinDir) {
	keeper, set := os.NewFile(3, "keeper"), os.NewFile(4, "set")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	for {
		st, err := os.Stat(p.keeper())
		if err != nil {
			break
		}
		wait := time.Until(st.ModTime())
		if wait <= 0 {
			break
		}
		time.Sleep(min(wait, keeperLook))
	}
	_ = os.Remove(p.keeper())
	keeper.Close()
	p.removeIfLast(set)
	set.Close()
}

// HostObserver is an observer that is pinned on this host.
type HostObserver struct {
	// Path is the directory that it is pinned in; Own reports whether it is this
	// build's, and Kept that it stays without a run until StopObserver.
	Path string `json:"path"`
	Own  bool   `json:"own"`
	Kept bool   `json:"kept"`
	// Sessions are how many runs it observes, -1 of another build's. Problem says
	// why no run should use it, empty if it is what this build would load.
	Sessions int    `json:"sessions"`
	Problem  string `json:"problem,omitempty"`
}

// HostObservers lists the observers that are pinned on this host, and compares this build's with what it would load.
func HostObservers() ([]HostObserver, error) {
	return pinnedObservers((*set).genuine)
}

// pinnedObservers lists the observers that are pinned on this host. check judges this build's.
func pinnedObservers(check func(*set) error) ([]HostObserver, error) {
	p, err := findPinDir()
	if err != nil {
		return nil, err
	}
	all, err := p.everyDir()
	if err != nil {
		return nil, err
	}
	out := []HostObserver{}
	for _, other := range all {
		if _, err := os.Lstat(other.dir()); err != nil {
			continue // only its lock is left
		}
		h := HostObserver{Path: other.dir(), Own: other == p, Sessions: -1}
		_, err := os.Lstat(other.keep())
		h.Kept = err == nil
		if h.Own {
			s, err := openSet(other.dir())
			if err != nil {
				h.Problem = err.Error()
			} else {
				h.Sessions = s.taken()
				if err := check(s); err != nil {
					h.Problem = err.Error()
				}
				s.close()
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// StartObserver pins an observer for this build's runs and keeps it until
// StopObserver.
func StartObserver() error {
	p, err := findPinDir()
	if err != nil {
		return err
	}
	if err := p.nested(); err != nil {
		return err
	}
	lock, err := lockMade(p.lock(), unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.Mkdir(p.keep(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s, err := p.open(ringSize(0))
	if err != nil {
		_ = os.Remove(p.keep())
		p.removeIfLast(lock)
		return classify(err)
	}
	return s.close()
}

// stopTime bounds how long StopObserver waits for what is about to let go of an observer and is no run: a process that
// keeps it for a time, or one that removes it.
const stopTime = 20 * keeperLook

// StopObserver lets the observers of all builds go: at once where no run uses them, else with their last run. It
// returns how many it removed, and how many are still in use.
func StopObserver() (removed, used int, err error) {
	before, err := pinnedObservers(func(*set) error { return nil })
	if err != nil {
		return 0, 0, err
	}
	for begin := time.Now(); ; time.Sleep(keeperLook / 10) {
		if _, _, err := sweep(func(pinDir) bool { return true }); err != nil {
			return 0, 0, err
		}
		left, err := pinnedObservers(func(*set) error { return nil })
		if err != nil {
			return 0, 0, fmt.Errorf("look for observers that are left: %w", err)
		}
		busy := 0
		for _, h := range left {
			if (pinDir{home: filepath.Dir(h.Path), name: filepath.Base(h.Path)}).observesRun() {
				busy++
			}
		}
		// A keeper lets go within keeperLook, a run that ends soon.
		waited := time.Since(begin)
		if len(left) == 0 || waited > 2*keeperLook && busy == len(left) || waited > stopTime {
			return max(0, len(before)-len(left)), len(left), nil
		}
	}
}

// hasEnded reports whether a process has ended; zombies count as ended.
func hasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err == unix.ESRCH
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// Sweep frees what runs that died left in the observers that runs share, also in those of other builds: slots, and the
// programs where nobody is left. It returns how many of each. It waits for nobody.
func Sweep() (slots, sets int, err error) {
	return sweep(func(pinDir) bool { return false })
}

// SweepBuilds is Sweep, and frees also what StartObserver of another build keeps, where no run uses it.
func SweepBuilds() (slots, sets int, err error) {
	own, err := findPinDir()
	if err != nil {
		return 0, 0, err
	}
	return sweep(func(p pinDir) bool { return p != own })
}

// sweep is Sweep, and lets go of what is kept where unkeep says so.
func sweep(unkeep func(pinDir) bool) (slots, sets int, err error) {
	p, err := findPinDir()
	if err != nil {
		return 0, 0, err
	}
	if home, err := lockDir(p.home, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		p.sweepUnfinished()
		home.Close()
	}
	all, err := p.everyDir()
	if err != nil {
		return 0, 0, err
	}
	for _, other := range all {
		if unkeep(other) {
			_ = os.Remove(other.keep())
			_ = os.Remove(other.keeper())
		}
		lock, err := lockMade(other.lock(), unix.LOCK_SH|unix.LOCK_NB)
		if err != nil {
			continue
		}
		if other.removeIfLast(lock) {
			sets++
		} else if other == p {
			// A failed attempt to have the lock alone gives it up.
			if unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
				if s, err := openSet(p.dir()); err == nil {
					slots += s.sweepSlots(p)
					s.close()
				}
				if other.removeIfLast(lock) { // the last session may have left, and met us
					sets++
				}
			}
		}
		lock.Close()
	}
	return slots, sets, nil
}

// everyDir lists the sets of all builds, and what is left of them: those whose pins or lock are there, in p's bpffs and
// in the other one that sets can be in.
func (p pinDir) everyDir() (all []pinDir, err error) {
	homes := []string{p.home}
	for _, root := range []string{hostBPFFS, ownBPFFS} {
		home := filepath.Join(root, homeName)
		if home != p.home && isBPFFS(root) && ownedByRoot(home) == nil {
			homes = append(homes, home)
		}
	}
	for _, home := range homes {
		entries, err := os.ReadDir(home)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), lockSuffix)
			other := pinDir{home: home, name: name}
			if isBuild(name) && !slices.Contains(all, other) {
				all = append(all, other)
			}
		}
	}
	return all, nil
}

// isBuild reports whether a name in a home is that of a build's set, as buildName makes it. Others
// are not ours to remove.
func isBuild(name string) bool {
	return len(name) == hex.EncodedLen(buildBytes) && strings.Trim(name, "0123456789abcdef") == ""
}

// observesRun reports whether a run has a slot of the set. It can tell of any build's.
func (p pinDir) observesRun() bool {
	entries, _ := os.ReadDir(p.lock())
	for _, e := range entries {
		f, err := lockDir(filepath.Join(p.lock(), e.Name()), unix.LOCK_SH|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true
		}
		if err == nil {
			f.Close()
		}
	}
	return false
}

// Sweeper is a process that frees what this one leaves if it is killed: its sessions' slots, the shared observer if
// nobody else uses it, and empty directories. It is for sessions without a guard, which does the same.
type Sweeper struct {
	pipe *os.File // the sweeper reads to its end
	cmd  *exec.Cmd
}

// StartSweeper starts a Sweeper. It returns nil if Enter was not called.
func StartSweeper() (*Sweeper, error) {
	if !role.Observer.Available() {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &Sweeper{pipe: w, cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: role.Observer.Args("sweeper", strconv.Itoa(os.Getpid())), Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, ExtraFiles: []*os.File{r}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}}
	if err := s.cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return s, nil
}

// Remove names directories that the sweeper removes at the end if they are empty. It is safe for concurrent use.
func (s *Sweeper) Remove(dirs ...string) {
	if s == nil {
		return
	}
	var lines []byte
	for _, dir := range dirs {
		lines = append(append(lines, dir...), '\n')
	}
	_, _ = s.pipe.Write(lines)
}

// Close lets the sweeper free what is left, and waits for it.
func (s *Sweeper) Close() error {
	if s == nil {
		return nil
	}
	_, _ = s.pipe.WriteString("\n") // it need not wait for the end of this process
	return errors.Join(s.pipe.Close(), s.cmd.Wait())
}

// sweepAfter is the sweeper of the process with this id. Descriptor 3 is the pipe: a line names a directory, an empty
// line says that the process goes on.
func sweepAfter(id string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var dirs []string
	lines := bufio.NewScanner(os.NewFile(3, "pipe"))
	closed := false
	for lines.Scan() {
		if lines.Text() == "" {
			closed = true
			continue
		}
		dirs = append(dirs, lines.Text())
	}
	if !closed {
		untilGone(id)
	}
	_, _, err := Sweep()
	for _, dir := range dirs {
		_ = os.Remove(dir)
	}
	return err
}
