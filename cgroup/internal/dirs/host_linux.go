package dirs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Host is what this machine allows. What it offers does not change after
// Probe.
type Host struct {
	mode        Mode
	v2          *hierarchy   // nil unless writable
	v1          []*hierarchy // the writable ones that carry something of use
	mounts      []mount      // of every hierarchy
	reasons     []Reason
	controllers []Controller
	clone       error // why CLONE_INTO_CGROUP cannot be used; nil: it can

	mu       sync.Mutex
	sessions int
	made     map[string]int // how many of them are in a directory
	spare    []string       // parents of sessions that the probe made
	undo     []func()       // called when the last session is removed
}

// controllers in the order that Controllers lists them.
var kinds = []string{"memory", "pids", "cpu", "io"}

// Probe finds out what this host allows by trying: it makes and removes an
// empty cgroup on every hierarchy. It never fails: a host that allows nothing
// is of mode None.
func Probe() *Host {
	h := ProbeForSession()
	h.Tidy()
	return h
}

// ProbeForSession is Probe, but keeps the cgroups that it makes until NewSession or Tidy. Most
// often the session is made in them. A process that is killed in between leaves them empty, and
// the next Sweep or session removes them.
func ProbeForSession() *Host {
	v2, v1, all, err := hierarchies()
	h := &Host{mode: None, mounts: all}
	switch {
	case err != nil:
		h.because("cgroup_unreadable", "cannot tell which cgroup this process is in: "+err.Error(), "mount /proc")
		v2, v1 = nil, nil
	case v2 == nil && len(v1) == 0:
		h.because("cgroup_not_mounted", "no cgroup hierarchy is mounted here", "mount -t cgroup2 none /sys/fs/cgroup")
	}
	if v2 != nil {
		if err := h.writable(v2); err != nil {
			h.refused(err, "cgroup2_not_writable", remedyDelegate)
		} else {
			h.v2 = v2
		}
	}
	for _, l := range v1 {
		if !l.useful(h.v2 != nil) {
			continue
		}
		if err := h.writable(l); err == nil {
			h.v1 = append(h.v1, l)
		} else if v2 == nil || len(v2.controllers) == 0 {
			h.refused(err, "cgroup_v1_not_writable", "run as root")
		}
	}
	switch {
	case h.v2 != nil && len(h.v1) == 0 && cgroups.Mode() != cgroups.Hybrid:
		h.mode = Unified
	case h.v2 != nil:
		h.mode = Hybrid
	case slices.ContainsFunc(h.v1, func(l *hierarchy) bool { return l.has("freezer") || l.has("pids") }):
		h.mode = Legacy
	default:
		h.v1 = nil // nothing that could hold all of a session's processes
	}
	if h.v2 != nil {
		if h.clone = cloneIntoCgroup(); h.clone != nil {
			h.because("clone_into_cgroup_unavailable",
				fmt.Sprintf("clone3 with CLONE_INTO_CGROUP fails: %v; commands are started by way of a re-exec",
					h.clone),
				"use kernel 5.7 or later and a seccomp profile that allows clone3")
		}
	}
	for _, k := range kinds {
		h.controllers = append(h.controllers, h.controller(k))
	}
	return h
}

const remedyDelegate = "run as root, or in a delegated cgroup: systemd-run --user --scope -p Delegate=yes assay-run ..."

func (h *Host) because(code, message, remedy string) {
	h.reasons = append(h.reasons, Reason{code, message, remedy})
}

// refused notes why a hierarchy cannot be used: missing permissions, or a full hierarchy.
func (h *Host) refused(err error, code, remedy string) {
	if full, ok := errors.AsType[*procs.FullError](err); ok {
		code, remedy = procs.CodeFull, full.Remedy
	}
	h.because(code, err.Error(), remedy)
}

// Mode says what holds a session together here.
func (h *Host) Mode() Mode { return h.mode }

// Reasons say why Mode is not Unified, and which other features are missing. It is empty if none is.
func (h *Host) Reasons() []Reason { return slices.Clone(h.reasons) }

// Controllers says for memory, pids, cpu and io, in this order, what can be limited and counted.
func (h *Host) Controllers() []Controller { return slices.Clone(h.controllers) }

func (h *Host) controller(kind string) Controller {
	c := Controller{Name: kind}
	if h.mode == None {
		c.Reason, c.Remedy = "no cgroup is writable", remedyDelegate
		return c
	}
	if h.v2.has(kind) {
		how, err := h.v2.source(kind)
		if err != nil {
			c.Reason, c.Remedy = err.Error(), remedyUnit
			return c
		}
		c.Available, c.Hierarchy, c.Reason = true, "v2", how.note()
		if why := h.v2.oomStops(how.base); kind == "memory" && why != "" {
			c.Reason, c.Remedy = why, remedyUnit+"; or set OOMPolicy=continue for the unit"
		}
		return c
	}
	if l := h.onV1(kind); l != nil {
		return Controller{Name: kind, Available: true, Hierarchy: "v1"}
	}
	c.Reason = "no writable hierarchy carries it"
	c.Remedy = "run as root; for an ordinary user: systemctl edit user@.service, [Service] Delegate=cpu " +
		"cpuset io memory pids"
	if os.Geteuid() == 0 {
		c.Remedy = "enable it in cgroup.subtree_control of the cgroups above this container or service; if the host " +
			"has it on cgroup v1, boot the host with systemd.unified_cgroup_hierarchy=1"
	}
	if h.v2 != nil && len(h.v1) == 0 {
		c.Reason = fmt.Sprintf("%s does not list it in cgroup.controllers", h.v2.own)
		if h.v2.delegable(kind) {
			c.Remedy = remedyUnit
		}
	}
	return c
}

// onV1 returns the writable v1 hierarchy of a controller, by its v2 name.
func (h *Host) onV1(kind string) *hierarchy {
	name := kind
	if kind == "io" {
		name = "blkio"
	}
	for _, l := range h.v1 {
		if l.has(name) {
			return l
		}
	}
	return nil
}

// writable makes the parent of the sessions in the runner's own cgroup, and returns an error if processes cannot be
// moved there: that takes write access to the cgroup.procs of the common ancestor, which is the runner's own
// (cgroup-v2.rst, "Delegation Containment").
func (h *Host) writable(l *hierarchy) error {
	dir := filepath.Join(l.own, parentName)
	err := makeDir(dir)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err == nil {
		h.spare = append(h.spare, dir)
	}
	for _, d := range []string{l.own, dir} {
		err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(d, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS)
		if err == unix.ENOENT && d == dir { // another run ended and removed it: it can be made
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot put processes into cgroup %s: %w", d, err)
		}
	}
	if l.v2 {
		// A threaded or invalid domain takes no processes of another one.
		if t := words(filepath.Join(dir, "cgroup.type")); len(t) > 0 && t[0] != "domain" {
			return fmt.Errorf("cannot put processes into cgroup %s: its type is %q", dir, strings.Join(t, " "))
		}
	}
	return nil
}

// Tidy removes the cgroups that the probe made, if no session is in them.
func (h *Host) Tidy() {
	h.mu.Lock()
	spare := h.spare
	h.spare = nil
	h.mu.Unlock()
	for _, dir := range spare {
		if h.ours(dir) == 0 {
			_ = unix.Rmdir(dir) // fails if another run has a session there
		}
	}
}

// cloneIntoCgroup reports whether clone3 takes a cgroup, without ever creating
// a process.
var cloneIntoCgroup = sync.OnceValue(tryClone3)

// place is where a session goes on one hierarchy.
type place struct {
	h      *hierarchy
	base   string
	enable []string // controllers to switch on in base first
	move   bool     // the runner has to leave base first
	limits []string // the limits that are set here
}

// primaries are the v1 controllers whose hierarchies are used without cgroup2. The first one that is mounted is on the
// primary hierarchy, through which processes are listed and killed.
var primaries = []string{"freezer", "pids", "cpuacct"}

// primary is the hierarchy that a session's first directory is on, nil if there is none.
func (h *Host) primary() *hierarchy {
	if h.v2 != nil {
		return h.v2
	}
	for _, k := range primaries {
		if l := h.onV1(k); l != nil {
			return l
		}
	}
	return nil
}

// Refused names the limits that are not enforced where no cgroup is writable, or
// returns a *LimitError.
func (h *Host) Refused(l Limits) (unenforced []string, err error) {
	s := &Session{host: h}
	_, err = s.plan(l)
	return s.unenforced, err
}

// limit writes the limits to a session directory.
func (p place) limit(path string, l Limits) error {
	set := func(file string, n int64) error {
		return write(filepath.Join(path, file), strconv.FormatInt(n, 10))
	}
	for _, kind := range p.limits {
		var err error
		switch {
		case kind == "pids":
			err = set("pids.max", l.Pids)
		case kind == "memory" && p.h.v2:
			if err = set("memory.max", l.MemoryBytes); err == nil && exists(filepath.Join(path, "memory.swap.max")) {
				err = set("memory.swap.max", 0)
			}
		case kind == "memory":
			if err = set("memory.limit_in_bytes", l.MemoryBytes); err == nil &&
				exists(filepath.Join(path, "memory.memsw.limit_in_bytes")) {
				err = set("memory.memsw.limit_in_bytes", l.MemoryBytes)
			}
		case kind == "cpu" && p.h.v2:
			err = write(filepath.Join(path, "cpu.max"), fmt.Sprintf("%d %d", quota(l.CPUMilli), period))
		case kind == "cpu":
			if err = set("cpu.cfs_period_us", period); err == nil {
				err = set("cpu.cfs_quota_us", quota(l.CPUMilli))
			}
		}
		if err != nil {
			return fmt.Errorf("set the %s limit: %w", kind, err)
		}
	}
	return nil
}

const period = 100_000 // µs, the kernel's default

// quota is in µs per period; the kernel takes no less than 1 ms.
func quota(milli int64) int64 { return max(milli*period/1000, 1000) }

// prepare enables the controllers that the session needs in the bases. The last of this host's sessions undoes it.
func (h *Host) prepare(places []place) (undo func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range places {
		if len(p.enable) == 0 {
			continue
		}
		u, err := claim(p.base, p.move, p.enable)
		if err != nil {
			return nil, err
		}
		h.undo = append(h.undo, u)
	}
	h.sessions++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sessions--; h.sessions == 0 {
			for _, u := range slices.Backward(h.undo) {
				u()
			}
			h.undo = nil
		}
	}, nil
}

const parentName = "assay-run"

// open makes, opens and share-locks the parent of the sessions, which keeps
// sweepers off a session between its creation and its lock.
func (p place) open(parent string) (int, error) {
	if err := makeDir(parent); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, err
	}
	fd, err := unix.Open(parent, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: parent, Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "lock", Path: parent, Err: err}
	}
	if p.h.v2 {
		for _, k := range words(filepath.Join(p.base, "cgroup.subtree_control")) {
			if slices.Contains(kinds, k) {
				_ = write(filepath.Join(parent, "cgroup.subtree_control"), "+"+k)
			}
		}
	}
	return fd, nil
}

// lockDir takes a session directory's lock, or fails with EWOULDBLOCK if a
// live runner has it.
func lockDir(path string) (int, error) {
	fd, err := lockAt(unix.AT_FDCWD, path)
	if err != nil {
		return -1, err
	}
	// It may have been removed, and unlocked, after it was opened.
	var opened, there unix.Stat_t
	if err = errors.Join(unix.Fstat(fd, &opened), unix.Stat(path, &there)); err == nil && opened.Ino != there.Ino {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// lockAt is lockDir for a directory that nobody can remove meanwhile.
func lockAt(at int, path string) (int, error) {
	fd, err := unix.Openat(at, path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// count adds n to the number of our sessions in a directory.
func (h *Host) count(parent string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.made == nil {
		h.made = map[string]int{}
	}
	h.made[parent] += n
}

// ours is how many of our sessions are in a directory.
func (h *Host) ours(parent string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made[parent]
}

// systemd puts a slice where its name says: "a-b.slice" below "a.slice". The session's has no dash, so it leaves no
// parent behind. No run id has a dot.
const (
	slicePrefix      = "assay_run_"
	sliceSuffix      = ".slice"
	containersSuffix = "-" + containersName + sliceSuffix
)

func sliceName(runID string) string {
	return slicePrefix + strings.ReplaceAll(runID, "-", ".") + sliceSuffix
}

func sliceRunID(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, slicePrefix), sliceSuffix), ".", "-")
}

// containersPath is the directory for containers of the session in a directory.
func containersPath(session dir) string {
	if session.slice {
		return filepath.Join(session.path, strings.TrimSuffix(filepath.Base(session.path), sliceSuffix)+
			containersSuffix)
	}
	return filepath.Join(session.path, containersName)
}

// Slices reports whether a session can be a slice of systemd: as root, where systemd manages the hierarchy that is
// mounted here.
func (h *Host) Slices() bool {
	return h.mode == Unified && os.Geteuid() == 0 && exists("/run/systemd/system") &&
		exists(filepath.Join(h.v2.mount, "init.scope"))
}

// lockMaking takes the lock under which slices are made and swept: a slice that is being made has no lock of its own
// yet.
func lockMaking(mount string, patience time.Duration) (int, error) {
	fd, err := unix.Open(mount, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: mount, Err: err}
	}
	for end := time.Now().Add(patience); ; time.Sleep(procs.LockLook) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return fd, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || !time.Now().Before(end) {
			unix.Close(fd)
			return -1, &os.PathError{Op: "lock", Path: mount, Err: err}
		}
	}
}

// endStale ends the session that a dead runner left as this slice, if any. The error wraps procs.ErrInUse if the slice
// is in use or somebody else's.
func endStale(d dir, runID string) error {
	lock, err := lockDir(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("cgroup %s: %w", d.path, procs.ErrInUse)
	case err != nil:
		return err
	}
	defer unix.Close(lock)
	if ours, err := isOurs(d, runID); err != nil {
		return err
	} else if !ours {
		return fmt.Errorf("somebody else's slice %s: %w", d.path, procs.ErrInUse)
	}
	return sweepDir(d, func() {})
}

// sweepSlices does what sweep does, for sessions that are slices.
func (h *Host) sweepSlices(found map[string]*Swept, last func(parent, note string)) error {
	if !h.Slices() {
		return nil
	}
	paths, _ := filepath.Glob(filepath.Join(h.v2.mount, slicePrefix+"?*"+sliceSuffix))
	if len(paths) == 0 {
		return nil
	}
	making, err := lockMaking(h.v2.mount, 0)
	if err != nil {
		return nil // a slice is being made: the next run sweeps
	}
	stale := map[string]int{}
	for _, path := range paths {
		if lock, err := lockDir(path); err == nil {
			stale[path] = lock
		}
	}
	unix.Close(making)
	var failed error
	for path, lock := range stale {
		id, d := sliceRunID(filepath.Base(path)), dir{path: path, v2: true, slice: true}
		if ours, err := isOurs(d, id); err != nil || !ours {
			failed = errors.Join(failed, err)
		} else {
			if found[id] == nil {
				found[id] = &Swept{RunID: id}
			}
			found[id].Killed += len(pids([]dir{d}))
			text := note(d)
			found[id].Err = errors.Join(found[id].Err, sweepDir(d, func() {
				if text != "" {
					last(filepath.Base(containersPath(d)), text)
				}
			}))
		}
		unix.Close(lock)
	}
	return failed
}

// Sweep kills and removes the sessions that dead runners left in the runner's own cgroup and those above it. It never
// touches the session of a live runner or guard, which hold locks on the session's directories on every hierarchy, nor
// that session's outskirts. Before it removes an empty session with a note, it calls last with the session's
// CgroupParent and the note. In mode None it finds nothing.
func (h *Host) Sweep(last func(parent, note string)) ([]Swept, error) {
	found := map[string]*Swept{}
	var failed error
	for _, l := range h.inOrder() {
		for base := l.own; ; base = filepath.Dir(base) {
			if err := h.sweep(l, filepath.Join(base, parentName), found, last); err != nil {
				failed = errors.Join(failed, err)
			}
			if base == l.mount || !strings.HasPrefix(base, l.mount) {
				break
			}
		}
	}
	failed = errors.Join(failed, h.sweepSlices(found, last))
	var swept []Swept
	for _, s := range found {
		swept = append(swept, *s)
	}
	slices.SortFunc(swept, func(a, b Swept) int { return strings.Compare(a.RunID, b.RunID) })
	return swept, failed
}

// inOrder returns the hierarchies, the primary one first.
func (h *Host) inOrder() []*hierarchy {
	p := h.primary()
	if p == nil {
		return h.v1
	}
	return append([]*hierarchy{p}, slices.DeleteFunc(slices.Clone(h.v1), func(l *hierarchy) bool { return l == p })...)
}

// sweep sweeps the sessions in one directory, which usually has only those of this process.
func (h *Host) sweep(l *hierarchy, parent string, found map[string]*Swept, last func(parent, note string)) error {
	var st unix.Stat_t
	if ours := h.ours(parent); ours > 0 && unix.Stat(parent, &st) == nil && int(st.Nlink) == subdirs0+ours {
		return nil
	}
	fd, err := unix.Open(parent, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	// A session is made under a shared lock of the parent. If one is being made, the next run sweeps.
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		unix.Close(fd)
		return nil
	}
	stale := map[string]int{}
	locked := "/proc/self/fd/" + strconv.Itoa(fd) // parent may be another by now
	entries, err := os.ReadDir(locked)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the last session removed it
	}
	for _, e := range entries {
		if e.IsDir() {
			if lock, err := lockDir(filepath.Join(locked, e.Name())); err == nil {
				stale[e.Name()] = lock
			}
		}
	}
	unix.Close(fd)
	var above []string
	primary := h.primary()
	for name, lock := range stale {
		if l != primary && exists(filepath.Join(primary.mount, below(l.mount, filepath.Join(parent, name)))) {
			unix.Close(lock)
			continue
		}
		id := strings.TrimSuffix(name, guardSuffix)
		if found[id] == nil {
			found[id] = &Swept{RunID: id}
		}
		d := dir{path: filepath.Join(parent, name), v2: l.v2, freezer: l.has("freezer")}
		found[id].Killed += len(pids([]dir{d}))
		ended := func() {}
		if text := note(d); text != "" {
			ended = func() { last(filepath.Join(below(l.mount, d.path), containersName), text) }
		}
		if err := sweepDir(d, ended); err != nil {
			found[id].Err = errors.Join(found[id].Err, err)
		}
		if l == primary { // whose lock a new session of that id takes first
			o := h.outskirts(below(l.mount, d.path), []dir{d})
			found[id].Err = errors.Join(found[id].Err, remove(o.dirs))
			above = append(above, o.above...)
		}
		unix.Close(lock)
	}
	if unix.Rmdir(parent) == nil {
		tidy(above)
	}
	return err
}

// sweepDir kills the processes of a stale session directory, calls last, and removes the directory.
func sweepDir(d dir, last func()) error {
	dirs := []dir{d}
	(&Session{containers: dir{path: containersPath(d), v2: d.v2}}).NoContainers()
	if err := kill(dirs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := wait(ctx, dirs); err != nil {
		return err
	}
	last()
	return remove(dirs)
}

// NewSession makes the session's directories and sets the limits. The error
// may be a *LimitError or wrap procs.ErrInUse.
func (h *Host) NewSession(runID string, l Limits) (_ *Session, err error) {
	s := &Session{host: h, runID: runID, seen: map[int]string{}}
	places, err := s.plan(l)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Remove()
		}
	}()
	if s.undo, err = h.prepare(places); err != nil {
		return nil, err
	}
	for _, p := range places {
		d, err := s.make(p, l)
		if err != nil {
			return nil, err
		}
		s.dirs = append(s.dirs, d)
		if err := p.limit(d.path, l); err != nil {
			return nil, err
		}
	}
	s.mount = places[0].h.mount
	s.outskirts = h.outskirts(below(s.mount, s.Path()), s.dirs)
	if l.Containers {
		s.claimOutskirts()
	}
	return s, s.makeContainers()
}

// outskirts of a session whose directory below the root of each hierarchy is path.
func (h *Host) outskirts(path string, has []dir) (o outskirts) {
	var seen []string
	for _, m := range h.mounts {
		d := dir{path: filepath.Join(m.dir, path), v2: m.v2, freezer: slices.Contains(m.controllers, "freezer")}
		if slices.Contains(seen, m.id) || slices.ContainsFunc(has, func(own dir) bool { return own.path == d.path }) {
			continue
		}
		if !exists(m.dir) { // not readable for this user, so not writable either
			continue
		}
		seen = append(seen, m.id)
		o.dirs = append(o.dirs, d)
		above := filepath.Dir(d.path)
		for o.above = append(o.above, above); ; o.above = append(o.above, above) {
			if above = filepath.Dir(above); len(above) <= len(m.dir) || exists(above) {
				break
			}
		}
	}
	return o
}
