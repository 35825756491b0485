package dirs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Session is the directories of one run.
type Session struct {
	host       *Host
	runID      string
	unenforced []string
	dirs       []dir         // the session directories, the primary first
	mount      string        // of the primary's hierarchy
	containers dir           // below the primary
	untouched  unix.Timespec // when containers was made
	outskirts  outskirts
	locks      []int // one per dir: free when runner and guard are dead
	viaShim    bool  // start by the joiner, so that a v1 pids limit counts none of our tasks
	undo       func()

	// pidsFloor is the pids peak up to which our own tasks may have been counted.
	pidsFloor atomic.Int64

	mu     sync.Mutex
	groups []*Group
	seen   map[int]string // by hierarchy: the kernel's path of the session's directory, once known
}

// Path is the session's directory on the primary hierarchy.
func (s *Session) Path() string { return s.dirs[0].path }

// Locks are descriptors to hold as long as the session may be alive.
func (s *Session) Locks() []int { return slices.Clone(s.locks) }

// Unenforced names the limits that are not enforced.
func (s *Session) Unenforced() []string { return slices.Clone(s.unenforced) }

// NewGroup makes a group's directories.
func (s *Session) NewGroup(name string) (*Group, error) {
	g := &Group{session: s, name: name}
	for _, d := range s.dirs {
		d.path, d.slice = filepath.Join(d.path, name), false
		if err := makeDir(d.path); err != nil {
			return nil, errors.Join(err, remove(g.dirs))
		}
		g.dirs = append(g.dirs, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 { // the agent's
		g.containers = []dir{s.containers}
		g.warm()
	}
	s.groups = append(s.groups, g)
	return g, nil
}

func (s *Session) groupList() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.groups)
}

// Frozen reports whether what is started in the session is frozen (cgroups.rst, freezer-subsystem.rst).
func (s *Session) Frozen() bool {
	for _, d := range s.dirs {
		switch {
		case d.v2:
			if events, _ := procs.ReadFile(filepath.Join(d.path, "cgroup.events")); bytes.Contains(events,
				[]byte("frozen 1")) {
				return true
			}
		case d.freezer:
			if state, _ := procs.ReadFile(filepath.Join(d.path, "freezer.state")); bytes.HasPrefix(state,
				[]byte("FR")) {
				return true // FREEZING or FROZEN
			}
		}
	}
	return false
}

// Kill ends every process of the session.
func (s *Session) Kill() error { return kill(s.dirs) }

// Remove kills what is left and removes the session from every hierarchy, with
// all cgroups that were made inside. It returns when they are gone, and may be
// called again after an error.
func (s *Session) Remove() error {
	for _, g := range s.groupList() {
		g.settle()
	}
	if !s.removeGroups() && !empty(s.dirs) {
		s.NoContainers()
		_ = kill(s.dirs)
	}
	if err := remove(slices.Concat(s.dirs, s.outskirts.dirs)); err != nil {
		return err
	}
	for _, fd := range s.locks {
		unix.Close(fd)
	}
	s.locks = nil
	for _, d := range s.dirs {
		if !d.slice {
			s.host.count(filepath.Dir(d.path), -1)
		}
	}
	removeParents(s.dirs, s.outskirts.above)
	if s.undo != nil {
		s.undo()
		s.undo = nil
	}
	return nil
}

// removeParents removes the parent directories that all sessions share. While another session exists,
// the removal fails, as intended. A slice has no such directory.
func removeParents(dirs []dir, above []string) {
	for i, d := range dirs {
		if d.slice {
			continue
		}
		if err := unix.Rmdir(filepath.Dir(d.path)); i == 0 && err == nil {
			defer tidy(above)
		}
	}
}

// removeGroups removes the groups' directories if they are empty, as they are
// at the end of nearly every run, and reports whether they were.
func (s *Session) removeGroups() bool {
	done := true
	for _, g := range s.groupList() {
		for _, d := range g.dirs {
			err := unix.Rmdir(d.path)
			done = done && (err == nil || errors.Is(err, fs.ErrNotExist))
		}
	}
	err := unix.Rmdir(s.containers.path)
	return done && (err == nil || errors.Is(err, fs.ErrNotExist))
}

// containersName is the directory of a session below which container engines make
// cgroups. It holds no process itself, so that on cgroup2 they can switch
// controllers on in it. It belongs to the session, so that the user of this process can end
// what another user's engine put there.
const containersName = "containers"

// outskirts are the directories that an engine makes for the session's containers on hierarchies where the session has
// none: an engine uses one path on all hierarchies. They may not exist. They are in use while the session's directory
// on the primary hierarchy exists, which is made first and removed last (see Sweep).
type outskirts struct {
	dirs []dir
	// above are the directories above them that did not exist when the session began, the deepest first.
	above []string
}

// claimOutskirts makes and locks the v1 outskirts for a run that will have containers: sweeps of earlier builds check
// nothing but the lock. Errors do not matter: where this user may not make a directory, the user's engine may not
// either.
func (s *Session) claimOutskirts() {
	for _, m := range s.host.mounts {
		path := filepath.Join(m.dir, below(s.mount, s.Path()))
		h := &hierarchy{mount: m.dir, v2: m.v2, controllers: m.controllers}
		if h.v2 || !h.useful(false) || !slices.ContainsFunc(s.outskirts.dirs, func(d dir) bool {
			return d.path == path
		}) {
			continue
		}
		base := filepath.Dir(filepath.Dir(path))
		if os.MkdirAll(base, 0o755) == nil {
			_, _ = s.create(place{h: h, base: base})
		}
	}
}

// tidy removes outskirts.above. No other session may be left, since its engine could be making something there.
func tidy(above []string) {
	for _, path := range above {
		_ = unix.Rmdir(path)
	}
}

// below is the path of a directory from the root of its hierarchy.
func below(mount, path string) string {
	return "/" + strings.Trim(strings.TrimPrefix(path, mount), "/")
}

// CgroupParent is the session's directory for containers as an engine takes it: a
// path below the root of each hierarchy, or the name of a slice.
func (s *Session) CgroupParent() string {
	if s.containers.slice {
		return filepath.Base(s.containers.path)
	}
	return filepath.Join(below(s.mount, s.dirs[0].path), containersName)
}

// Apart reports whether the session and its containers have different paths on a hierarchy. The session's limits there
// do not hold for the containers then.
func (s *Session) Apart() bool {
	for _, d := range s.dirs[1:] {
		for _, m := range s.host.mounts {
			if strings.HasPrefix(d.path, m.dir+"/") && below(m.dir, d.path) != below(s.mount, s.dirs[0].path) {
				return true
			}
		}
	}
	return false
}

// makeContainers makes the directory on the primary hierarchy.
func (s *Session) makeContainers() error {
	s.containers = s.dirs[0]
	s.containers.path = containersPath(s.dirs[0])
	if s.containers.slice {
		if err := startSlice(s.containers.path, s.runID, Limits{}); err != nil {
			return err
		}
	} else if err := makeDir(s.containers.path); err != nil {
		return err
	}
	// The kernel keeps a cgroup directory's times only after a call that sets an
	// attribute (fs/kernfs/inode.c); from then on they change when an entry is made or removed.
	if err := os.Chmod(s.containers.path, 0o755); err != nil {
		return err
	}
	s.untouched = modified(s.containers.path)
	return nil
}

// modified is when an entry of a directory was last made or removed; zero if unknown.
func modified(path string) (t unix.Timespec) {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		t = st.Mtim
	}
	return t
}

// HadContainers reports whether an engine has made a cgroup below CgroupParent, even if it is gone.
func (s *Session) HadContainers() bool { return modified(s.containers.path) != s.untouched }

// NoContainers makes the kernel refuse further containers on cgroup2, so that no engine restarts those that we kill:
// cgroup.max.descendants in cgroup-v2.rst.
func (s *Session) NoContainers() {
	if s.containers.v2 {
		_ = write(filepath.Join(s.containers.path, "cgroup.max.descendants"), "0")
	}
}

// AllowContainers undoes NoContainers.
func (s *Session) AllowContainers() {
	if s.containers.v2 {
		_ = write(filepath.Join(s.containers.path, "cgroup.max.descendants"), "max")
	}
}

// Containers are the cgroups of containers and their supervisors, as paths below CgroupParent.
func (s *Session) Containers() (found []string) {
	for _, path := range nested(s.containers.path)[1:] {
		found = append(found, strings.TrimPrefix(path, s.containers.path))
	}
	return found
}

// Left reports whether a cgroup of a v1 hierarchy is outside of the session although the session has a cgroup in that
// hierarchy. The arguments are the hierarchy's number (proc_pid_cgroup(5)), the cgroup's inode number, and its path as
// the kernel reports it. controllers names the hierarchy's controllers; limited reports whether the session has a limit
// that needs one of them.
func (s *Session) Left(hierarchy int, id uint64, path string) (controllers string, limited, left bool) {
	for _, d := range s.dirs {
		if d.v2 || d.number != hierarchy {
			continue
		}
		for _, dir := range nested(d.path) {
			var st unix.Stat_t
			if unix.Stat(dir, &st) != nil || st.Ino != id {
				continue
			}
			if rel, err := filepath.Rel(d.path, dir); err == nil { // and so where the session's is
				s.mu.Lock()
				s.seen[hierarchy] = strings.TrimSuffix(strings.TrimSuffix(path, rel), "/")
				s.mu.Unlock()
			}
			return "", false, false
		}
		s.mu.Lock()
		own := s.seen[hierarchy]
		s.mu.Unlock()
		if own != "" && strings.HasPrefix(path, own+"/") {
			return "", false, false // it has been removed since
		}
		return d.controllers, d.limited, true
	}
	return "", false, false
}

// noteKey is the extended attribute of a session's directory on the primary hierarchy.
const noteKey = "user.assay-run.note"

// Note stores a text with the session, for the Sweep that finds the session after runner and guard have died.
func (s *Session) Note(text string) error {
	if err := unix.Setxattr(s.dirs[0].path, noteKey, []byte(text), 0); err != nil {
		return &os.PathError{Op: "setxattr " + noteKey, Path: s.dirs[0].path, Err: err}
	}
	return nil
}

// note is the text of a session in a directory. It is empty if there is none, or if the
// directory is not this user's: another user may have written it.
func note(d dir) string {
	var st unix.Stat_t
	text := make([]byte, 4096)
	if unix.Stat(d.path, &st) != nil || int(st.Uid) != os.Geteuid() {
		return ""
	}
	n, err := unix.Getxattr(d.path, noteKey, text)
	if err != nil {
		return ""
	}
	return string(text[:n])
}

// Orphans reports whether orphans of the session become children of this process: it is process 1 of its container.
func (s *Session) Orphans() bool { return os.Getpid() == 1 }

// Reap reaps the dead orphans of the session, but no process that was started by this one.
func (s *Session) Reap(started func(pid int) bool) {
	for pid, st := range procs.All() {
		if st.PPID == os.Getpid() && st.State == 'Z' && !started(pid) && s.holds(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// holds reports whether a process, dead or alive, is in the session's cgroup2.
func (s *Session) holds(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && bytes.Contains(b, []byte("/"+parentName+"/"+s.runID+"/"))
}

// guardSuffix follows the run id in the name of a guard's directory. No run id
// has a dot.
const guardSuffix = ".guard"

// GuardDir is a cgroup for the guard beside its session. A guard needs one if the session is not below the runner's own
// cgroup: systemd would kill runner and guard with the runner's unit, and the session would live on. The zero value is
// for a guard that stays in the runner's cgroup.
type GuardDir struct {
	Path  string
	Homes []string // cgroups to which the guard moves in the end: the first that accepts it
	Lock  *os.File // so that no sweep removes the directory; the guard holds it too
}

// GuardDir makes the directory, if the session's guard needs one.
func (s *Session) GuardDir() (GuardDir, error) {
	if !s.dirs[0].v2 {
		return GuardDir{}, nil
	}
	l, parent := s.host.v2, filepath.Dir(s.dirs[0].path)
	base, path := filepath.Dir(parent), s.dirs[0].path+guardSuffix
	if s.dirs[0].slice { // a slice is at the top, where only systemd should make directories
		base, parent = l.mount, filepath.Join(l.mount, parentName)
		path = filepath.Join(parent, s.runID+guardSuffix)
	}
	if base == l.own || filepath.Join(base, runnerLeaf) == l.own {
		return GuardDir{}, nil
	}
	fd, err := place{h: l, base: base}.open(parent)
	if err != nil {
		return GuardDir{}, err
	}
	defer unix.Close(fd)
	if err := makeDir(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return GuardDir{}, err
	}
	lock, err := lockDir(path)
	if err != nil {
		return GuardDir{}, fmt.Errorf("lock cgroup %s: %w", path, err)
	}
	return GuardDir{Path: path, Homes: []string{l.own, l.mount}, Lock: os.NewFile(uintptr(lock), path)}, nil
}

// Start starts the guard with fork, in its directory where the host can do that. Otherwise it moves the guard there,
// which can take 20 ms.
func (d GuardDir) Start(cmd *exec.Cmd, fork func(*exec.Cmd) error) error {
	if d.Path == "" {
		return fork(cmd)
	}
	if cloneIntoCgroup() == nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(d.Lock.Fd())
		return fork(cmd)
	}
	if err := fork(cmd); err != nil {
		return err
	}
	return write(filepath.Join(d.Path, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
}

// Leave moves the caller, the guard, out of the directory and removes it. If the guard can move nowhere, since the
// runner's cgroup is gone and only root may enter the root cgroup, the next sweep removes the directory.
func (d GuardDir) Leave() {
	for _, home := range d.Homes {
		if write(filepath.Join(home, "cgroup.procs"), "0") == nil {
			break
		}
	}
	d.Remove()
}

// Remove removes the directory. The guard must have left it.
func (d GuardDir) Remove() {
	if d.Path != "" {
		_ = unix.Rmdir(d.Path)
		_ = unix.Rmdir(filepath.Dir(d.Path)) // fails while another session is there
	}
	if d.Lock != nil {
		d.Lock.Close()
	}
}

// Ward is a session as its guard knows it.
type Ward struct {
	dirs, outskirts []dir
	above           []string // see outskirts
	own             GuardDir
}

// The kinds of a guard's arguments, each before a colon and a path.
const (
	argV2       = "v2"
	argV1       = "v1"
	argFreezer  = "freezer" // v1, with the freezer
	argSlice    = "slice"   // v2, of systemd's
	argGuardDir = "guard"
	argHome     = "home"
	argOutskirt = "outskirt-" // before one of the first three
	argAbove    = "above"
)

// GuardArgs are the arguments from which NewWard makes the session's ward.
func (s *Session) GuardArgs(own GuardDir) []string {
	var args []string
	for i, d := range slices.Concat(s.dirs, s.outskirts.dirs) {
		kind := argV1
		switch {
		case d.slice:
			kind = argSlice
		case d.v2:
			kind = argV2
		case d.freezer:
			kind = argFreezer
		}
		if i >= len(s.dirs) {
			kind = argOutskirt + kind
		}
		args = append(args, kind+":"+d.path)
	}
	for _, path := range s.outskirts.above {
		args = append(args, argAbove+":"+path)
	}
	if own.Path != "" {
		args = append(args, argGuardDir+":"+own.Path)
	}
	for _, home := range own.Homes {
		args = append(args, argHome+":"+home)
	}
	return args
}

// NewWard takes a guard's arguments.
func NewWard(args []string) *Ward {
	w := &Ward{}
	for _, a := range args {
		switch kind, path, _ := strings.Cut(a, ":"); kind {
		case argGuardDir:
			w.own.Path = path
		case argHome:
			w.own.Homes = append(w.own.Homes, path)
		case argAbove:
			w.above = append(w.above, path)
		default:
			kind, outskirt := strings.CutPrefix(kind, argOutskirt)
			d := dir{path: path, v2: kind == argV2 || kind == argSlice, slice: kind == argSlice,
				freezer: kind == argFreezer}
			if outskirt {
				w.outskirts = append(w.outskirts, d)
			} else {
				w.dirs = append(w.dirs, d)
			}
		}
	}
	return w
}

// KillFile opens the cgroup.kill of the session of a guard's arguments. It is nil if there is none.
func KillFile(args []string) *os.File {
	for _, d := range NewWard(args).dirs {
		if f, err := os.OpenFile(filepath.Join(d.path, "cgroup.kill"), os.O_WRONLY, 0); err == nil {
			return f
		}
	}
	return nil
}

// End kills the session's processes, waits until they are gone, calls last, and removes the session.
func (w *Ward) End(last func()) error {
	(&Session{containers: dir{path: containersPath(w.dirs[0]), v2: w.dirs[0].v2}}).NoContainers()
	for {
		_ = kill(w.dirs) // if that failed, remove tries again
		ctx, cancel := context.WithTimeout(context.Background(), again)
		err := wait(ctx, w.dirs)
		cancel()
		if err == nil {
			break
		}
	}
	last()
	if err := remove(slices.Concat(w.dirs, w.outskirts)); err != nil {
		return err
	}
	removeParents(w.dirs, w.above)
	return nil
}

// again is how long a guard waits before it kills again: somebody may have frozen the processes.
const again = time.Second

// Leave removes the guard's own cgroup, as the last step of the guard.
func (w *Ward) Leave() { w.own.Leave() }

// homeFiles are the v1 files through which a thread leaves the session.
func (s *Session) homeFiles() []string {
	var files []string
	for _, h := range s.host.v1 {
		for _, d := range s.dirs {
			if !d.v2 && d.path == filepath.Join(h.own, parentName, s.runID) {
				files = append(files, filepath.Join(h.own, "tasks"))
			}
		}
	}
	return files
}

// on returns the path of a controller's file in the session, or "" if there is none.
func (s *Session) on(file string) string {
	controller, _, _ := strings.Cut(file, ".")
	for _, d := range s.dirs {
		if path := filepath.Join(d.path, file); d.has(controller) && exists(path) {
			return path
		}
	}
	return ""
}

// Usage returns what the session consumed so far. Call it before Remove.
func (s *Session) Usage() Usage {
	var u Usage
	if s.dirs[0].v2 {
		stat := filepath.Join(s.dirs[0].path, "cpu.stat")
		u.CPUUserNS, u.CPUSystemNS = times(keyed(stat, "user_usec")), times(keyed(stat, "system_usec"))
	} else {
		u.CPUUserNS, u.CPUSystemNS = ptr(number(s.on("cpuacct.usage_user"))), ptr(number(s.on("cpuacct.usage_sys")))
	}
	u.MemoryPeakBytes = ptr(number(s.on("memory.peak")))
	if u.MemoryPeakBytes == nil {
		u.MemoryPeakBytes = ptr(number(s.on("memory.max_usage_in_bytes")))
	}
	for _, g := range s.groupList() {
		g.left()
	}
	if peak, ok := number(s.on("pids.peak")); ok && peak > s.pidsFloor.Load() {
		u.PidsPeak = &peak
	}
	if path := s.on("io.stat"); path != "" {
		u.IOReadBytes, u.IOWriteBytes = ioStat(path)
	} else if path := s.on("blkio.throttle.io_service_bytes_recursive"); path != "" {
		u.IOReadBytes, u.IOWriteBytes = blkio(path)
	}
	return u
}

// Events returns how often limits were hit so far. Call it before Remove.
func (s *Session) Events() Events {
	var e Events
	for _, d := range s.dirs {
		if d.v2 {
			// memory.events counts for the whole subtree; the controllers are
			// not handed on below the session, so pids.events does as well.
			if n, ok := keyed(filepath.Join(d.path, "memory.events"), "oom_kill"); ok {
				e.OOMKills = &n
			}
			if n, ok := keyed(filepath.Join(d.path, "pids.events"), "max"); ok {
				e.PidsMaxHits = &n
			}
			continue
		}
		// v1 counts in the cgroup of the process concerned.
		if d.has("memory") {
			e.OOMKills = plusEach(e.OOMKills, d.path, "memory.oom_control", "oom_kill")
		}
		if d.has("pids") {
			e.PidsMaxHits = plusEach(e.PidsMaxHits, d.path, "pids.events", "max")
		}
	}
	return e
}

// noteOurTasks is called when threads of ours have just left the session: the pids peak up to now may include them.
func (s *Session) noteOurTasks() {
	if peak, ok := number(s.on("pids.peak")); ok {
		for old := s.pidsFloor.Load(); peak > old && !s.pidsFloor.CompareAndSwap(old, peak); {
			old = s.pidsFloor.Load()
		}
	}
}

// plan decides where the session goes and what limits it there.
func (s *Session) plan(l Limits) ([]place, error) {
	h := s.host
	want := map[string]int64{"memory": l.MemoryBytes, "pids": l.Pids, "cpu": l.CPUMilli}
	var v2 *place
	if h.v2 != nil {
		v2 = &place{h: h.v2, base: h.v2.own}
		if filepath.Base(v2.base) == runnerLeaf {
			v2.base = filepath.Dir(v2.base)
		}
		if l.Slice {
			v2.base = h.v2.mount
		}
	}
	var v1 []*place
	on := func(h *hierarchy) *place {
		i := slices.IndexFunc(v1, func(p *place) bool { return p.h == h })
		if i < 0 {
			i, v1 = len(v1), append(v1, &place{h: h, base: h.own})
		}
		return v1[i]
	}
	if h.v2 == nil {
		for _, k := range primaries {
			if v1 := h.onV1(k); v1 != nil {
				on(v1)
			}
		}
	}
	for _, kind := range kinds {
		value := want[kind]
		if value < 0 {
			return nil, fmt.Errorf("the %s limit is negative: %d", kind, value)
		}
		c := h.controllers[slices.Index(kinds, kind)]
		switch {
		case value == 0 && c.Hierarchy == "v1" && kind != "cpu":
			on(h.onV1(kind)) // to count
		case value == 0:
		// systemd hands it out
		case l.Slice && slices.Contains(words(filepath.Join(h.v2.mount, "cgroup.controllers")), kind):
			v2.limits = append(v2.limits, kind)
		case !c.Available:
			if !l.BestEffort {
				return nil, &LimitError{Limit: kind, Controller: kind, Reason: c.Reason, Remedy: c.Remedy}
			}
			s.unenforced = append(s.unenforced, kind)
		case c.Hierarchy == "v1":
			p := on(h.onV1(kind))
			p.limits = append(p.limits, kind)
			s.viaShim = s.viaShim || kind == "pids"
		default:
			how, err := h.v2.source(kind)
			if err != nil {
				return nil, &LimitError{Limit: kind, Controller: kind, Reason: err.Error(), Remedy: c.Remedy}
			}
			if how.base != v2.base && len(v2.limits) > 0 { // one base, further up, must serve all limits
				for _, k := range v2.limits {
					if !h.v2.hands(how.base, k) {
						return nil, &LimitError{Limit: k, Controller: k,
							Reason: "no single cgroup hands out all controllers needed", Remedy: c.Remedy}
					}
				}
			}
			v2.base, v2.move = how.base, v2.move || how.claim
			v2.limits = append(v2.limits, kind)
			if how.enable {
				v2.enable = append(v2.enable, kind)
			}
		}
	}
	var places []place
	if v2 != nil {
		places = append(places, *v2)
	}
	for _, p := range v1 {
		places = append(places, *p)
	}
	return places, nil
}

// make makes the session directory in one place, or its slice.
func (s *Session) make(p place, l Limits) (dir, error) {
	if l.Slice {
		return s.createSlice(p, l)
	}
	return s.create(p)
}

// create makes the session directory in one place and locks it. The lock distinguishes a live session from a stale one
// (see Sweep): the kernel releases it when runner and guard are dead. A session with the same id must wait for it,
// since the guard would end that session too.
func (s *Session) create(p place) (dir, error) {
	parent := filepath.Join(p.base, parentName)
	path := filepath.Join(parent, s.runID)
	end := time.Now().Add(procs.LockWait)
	for range 100 {
		fd, err := p.open(parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by a session that just ended
		} else if err != nil {
			return dir{}, err
		}
		// Relative to the locked directory: the path may name another one by now.
		err = notMade(path, unix.Mkdirat(fd, s.runID, 0o755))
		var lock int
		if err == nil { // nobody removes it under our lock of the parent
			if lock, err = lockAt(fd, s.runID); err != nil {
				err = &os.PathError{Op: "lock cgroup", Path: path, Err: err}
			}
		}
		unix.Close(fd)
		switch {
		case err == nil:
			made := dir{
				path: path, v2: p.h.v2, freezer: !p.h.v2 && p.h.has("freezer"),
				number: p.h.number, controllers: strings.Join(p.h.controllers, ","), limited: len(p.limits) > 0,
			}
			s.locks = append(s.locks, lock)
			s.host.count(parent, 1)
			return made, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		case errors.Is(err, fs.ErrExist):
			if lock, err := lockDir(path); err == nil {
				err = sweepDir(dir{path: path, v2: p.h.v2, freezer: p.h.has("freezer")}, func() {})
				unix.Close(lock)
				if err != nil {
					return dir{}, err
				}
			} else if errors.Is(err, unix.EWOULDBLOCK) && time.Now().Before(end) {
				time.Sleep(procs.LockLook)
			} else if errors.Is(err, unix.EWOULDBLOCK) {
				return dir{}, fmt.Errorf("cgroup %s: %w", path, procs.ErrInUse)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return dir{}, err
			}
		default:
			_ = unix.Rmdir(parent) // fails if others have sessions there
			return dir{}, err
		}
	}
	return dir{}, fmt.Errorf("cgroup %s keeps being removed by somebody else", parent)
}

// createSlice makes and locks a slice for the session. systemd sets the limits, or it would reset them later. The slice
// is at the top of the hierarchy, outside of the runner's unit.
func (s *Session) createSlice(p place, l Limits) (dir, error) {
	d := dir{path: filepath.Join(p.base, sliceName(s.runID)), v2: true, slice: true}
	making, err := lockMaking(p.base, systemdTime)
	if err != nil {
		return dir{}, err
	}
	defer unix.Close(making)
	for end := time.Now().Add(procs.LockWait); ; time.Sleep(procs.LockLook) {
		err := endStale(d, s.runID)
		if err == nil {
			err = startSlice(d.path, s.runID, l)
		}
		if err == nil {
			lock, err := lockDir(d.path)
			if err != nil {
				return dir{}, errors.Join(err, stopSlice(d.path))
			}
			s.locks = append(s.locks, lock)
			return d, nil
		}
		if !errors.Is(err, procs.ErrInUse) || time.Now().After(end) {
			return dir{}, err
		}
	}
}
