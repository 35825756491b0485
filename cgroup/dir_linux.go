package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// dir is one directory of a session or group on one hierarchy.
type dir struct {
	path        string
	v2, freezer bool
}

// nested lists path and every cgroup below it, parents first.
func nested(path string) []string {
	all := []string{path}
	// kernfs counts subdirectories as links: 2 is none, and saves reading dozens
	// of control files' names (fs/kernfs/inode.c, kernfs_refresh_inode).
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Nlink == 2 {
		return all
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return all
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, nested(filepath.Join(path, e.Name()))...)
		}
	}
	return all
}

// pids lists the processes in the directories and below them, each once.
// A threaded cgroup2 refuses to list processes: its threads' ids do as well,
// since a signal to one thread's id by pidfd is for its whole process. This
// process is left out: v1 lists it while one of its threads is a launcher.
func pids(dirs []dir) []int {
	var found []int
	self := os.Getpid()
	for _, d := range dirs {
		for _, path := range nested(d.path) {
			b, err := readFile(filepath.Join(path, "cgroup.procs"))
			if errors.Is(err, unix.EOPNOTSUPP) {
				b, _ = readFile(filepath.Join(path, "cgroup.threads"))
			}
			for len(b) > 0 {
				n := 0
				i := 0
				for ; i < len(b) && b[i] != '\n'; i++ {
					n = n*10 + int(b[i]-'0')
				}
				b = b[min(i+1, len(b)):]
				if n > 0 && n != self { // 0 is a process outside our pid namespace
					found = append(found, n)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// empty tells whether no live process is in the directories or below.
func empty(dirs []dir) bool {
	for _, d := range dirs {
		if d.v2 {
			if n, ok := keyed(filepath.Join(d.path, "cgroup.events"), "populated"); ok && n == 0 {
				continue
			}
		}
		if len(pids([]dir{d})) > 0 {
			return false
		}
	}
	return true
}

// signalAll sends a signal to every process in the directories, once each, also
// to those that are forked meanwhile. A process id is used only while its
// process is in the directories, so a recycled one is never hit.
func signalAll(dirs []dir, sig unix.Signal) error {
	return signalRounds(func() []int { return pids(dirs) }, sig)
}

func signalRounds(list func() []int, sig unix.Signal) error {
	sent := map[int]bool{}
	var failed error
	quiet := 0 // a look at a moving set can miss one: two in a row do not
	for range 1000 {
		fds := map[int]int{}
		for _, pid := range list() {
			if sent[pid] {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fds[pid] = fd
			} else if !errors.Is(err, unix.ESRCH) {
				fds[pid] = -1 // no pidfds here, or no descriptor left
			}
		}
		if len(fds) == 0 {
			if quiet++; quiet == 2 {
				break
			}
			continue
		}
		quiet = 0
		still := list()
		for pid, fd := range fds {
			if slices.Contains(still, pid) {
				if err := sendSignal(pid, fd, sig); err != nil && !errors.Is(err, unix.ESRCH) {
					failed = fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), pid, err)
				}
				sent[pid] = true
			}
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	return failed
}

func sendSignal(pid, fd int, sig unix.Signal) error {
	if fd >= 0 {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return unix.Kill(pid, sig)
}

// kill ends every process in the directories. It does not wait until they are
// gone, but none of them can fork any more.
func kill(dirs []dir) error {
	var rest []dir
	for _, d := range dirs {
		if !d.v2 || write(filepath.Join(d.path, "cgroup.kill"), "1") != nil {
			rest = append(rest, d)
		}
	}
	if len(rest) == 0 || len(pids(rest)) == 0 {
		return nil
	}
	freeze(rest, true)
	err := signalAll(rest, unix.SIGKILL)
	freeze(rest, false)
	return err
}

// freeze stops or continues everything in the directories, where one of them
// can. The kernel does it in its own time.
func freeze(dirs []dir, on bool) (done bool) {
	for _, d := range dirs {
		switch {
		case d.v2:
			done = write(filepath.Join(d.path, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on]) == nil || done
		case d.freezer:
			if on {
				done = write(filepath.Join(d.path, "freezer.state"), "FROZEN") == nil || done
				continue
			}
			// What was frozen below, by whomever, stays so, and on v1 nothing
			// frozen dies.
			for _, path := range nested(d.path) {
				done = write(filepath.Join(path, "freezer.state"), "THAWED") == nil || done
			}
		}
	}
	return done
}

// remove removes the directories and all cgroups below, deepest first. Tasks
// that are just exiting keep a cgroup busy for a moment, and a process that
// slipped in is killed.
func remove(dirs []dir) error {
	for i := len(dirs) - 1; i >= 0; i-- { // the primary goes last
		if err := removeOne(dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

func removeOne(d dir) error {
	if unix.Rmdir(d.path) == nil {
		return nil
	}
	wait := 50 * time.Microsecond
	deadline := time.Now().Add(2 * time.Second)
	for {
		var last error
		all := nested(d.path)
		for _, path := range slices.Backward(all) {
			if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = &os.PathError{Op: "remove cgroup", Path: path, Err: err}
			}
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
		if errors.Is(last, unix.EBUSY) || errors.Is(last, unix.ENOTEMPTY) {
			_ = kill([]dir{d})
		} else {
			return last
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
	}
}

// readFile reads a file of /proc or of a cgroup whole, with half of the system
// calls that os.ReadFile makes.
func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return b, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return b, nil
		default:
			b = slices.Grow(b[:len(b)+n], 512)
		}
	}
}

// keyed reads one value of a flat keyed cgroup file.
func keyed(path, key string) (int64, bool) {
	w := words(path)
	for i := 0; i+1 < len(w); i += 2 {
		if w[i] == key {
			n, err := strconv.ParseInt(w[i+1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads a file of one number.
func number(path string) (int64, bool) {
	w := words(path)
	if len(w) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(w[0], 10, 64)
	return n, err == nil
}
