package dirs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// hierarchy is one mounted cgroup hierarchy as the runner sees it.
type hierarchy struct {
	v2          bool
	mount       string   // its mount point
	own         string   // the directory of the cgroup that the runner is in
	number      int      // v1: as proc_pid_cgroup(5) has it
	controllers []string // v1: what is mounted there; v2: what own may use
}

func (h *hierarchy) has(controller string) bool {
	return h != nil && slices.Contains(h.controllers, controller)
}

// mount is where a hierarchy is mounted, even if no session can use the hierarchy.
type mount struct {
	dir, id     string // id is the device number: the same for every mount of a hierarchy
	v2          bool
	controllers []string // and other options of the mount
}

// hierarchies lists the cgroup mounts, all of them and those in which the runner's own cgroup can be
// seen, from proc_pid_mountinfo(5) and proc_pid_cgroup(5). The first mount of
// a hierarchy counts.
func hierarchies() (v2 *hierarchy, v1 []*hierarchy, all []mount, err error) {
	self, err := memberOf("self")
	if err != nil {
		return nil, nil, nil, err
	}
	mounts, err := procs.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, nil, err
	}
	for line := range bytes.Lines(mounts) {
		before, after, ok := strings.Cut(string(line), " - ")
		if !strings.HasPrefix(after, "cgroup") {
			continue
		}
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		root, dir := unescape(f[3]), unescape(f[4])
		if g[0] == "cgroup" || g[0] == "cgroup2" {
			all = append(all, mount{dir: dir, id: f[2], v2: g[0] == "cgroup2", controllers: strings.Split(g[2], ",")})
		}
		switch g[0] {
		case "cgroup2":
			own, ok := within(dir, root, self.unified)
			if v2 == nil && ok {
				v2 = &hierarchy{v2: true, mount: dir, own: own,
					controllers: words(filepath.Join(own, "cgroup.controllers"))}
			}
		case "cgroup":
			var cs []string
			for opt := range strings.SplitSeq(g[2], ",") {
				if _, ok := self.v1[opt]; ok && !strings.HasPrefix(opt, "name=") {
					cs = append(cs, opt)
				}
			}
			if len(cs) == 0 || slices.ContainsFunc(v1, func(h *hierarchy) bool { return h.has(cs[0]) }) {
				continue
			}
			in := self.v1[cs[0]]
			if own, ok := within(dir, root, in.path); ok {
				v1 = append(v1, &hierarchy{mount: dir, own: own, number: in.number, controllers: cs})
			}
		}
	}
	return v2, v1, all, nil
}

// membership is which cgroups a process is in.
type membership struct {
	unified string              // its path on cgroup2, empty without one
	v1      map[string]v1Cgroup // by controller, and by name=... for a hierarchy without one
}

type v1Cgroup struct {
	number int // the hierarchy's
	path   string
}

// memberOf reads the proc_pid_cgroup(5) of a process, or of "self".
func memberOf(pid string) (m membership, err error) {
	b, err := procs.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return m, err
	}
	m.v1 = map[string]v1Cgroup{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] == "" {
			m.unified = f[2]
			continue
		}
		n, _ := strconv.Atoi(f[0])
		for c := range strings.SplitSeq(f[1], ",") {
			m.v1[c] = v1Cgroup{n, f[2]}
		}
	}
	return m, nil
}

// Of returns the cgroup2 directory of a process, if a mount shows it.
func Of(pid int) (dir string, ok bool) {
	m, err := memberOf(strconv.Itoa(pid))
	if err != nil {
		return "", false
	}
	return At(m.unified)
}

// At returns the directory of a path in the cgroup2 hierarchy, as proc_pid_cgroup(5)
// writes it, if a mount shows it.
func At(path string) (dir string, ok bool) {
	mounts, _ := procs.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if f := strings.Fields(before); len(f) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			if dir, ok = under(unescape(f[4]), unescape(f[3]), path); ok {
				return dir, true
			}
		}
	}
	return "", false
}

// within maps the cgroup path of a process to a directory under a mount that
// shows the hierarchy from root on.
func within(mount, root, path string) (string, bool) {
	dir, ok := under(mount, root, path)
	if !ok {
		return "", false
	}
	return dir, exists(filepath.Join(dir, "cgroup.procs"))
}

// under is the same for a directory that may not exist.
func under(mount, root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	if err != nil || path == "" || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(mount, rel), true
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// runnerLeaf is where a runner alone in its cgroup moves itself.
const runnerLeaf = "assay-run-runner"

// source says how a session can get a cgroup2 controller.
type source struct {
	base   string // the parent of assay-run/
	enable bool   // base does not hand it out yet, but may
	claim  bool   // the runner has to move into a leaf of base first
}

func (s source) note() string {
	switch {
	case s.claim:
		return "for a limit, the runner moves itself into a leaf of its cgroup"
	case s.enable:
		return "for a limit, the controller is switched on in the runner's cgroup"
	}
	return ""
}

// source finds where a session that needs a controller on cgroup2 can be put.
// See the package documentation for the order and the reasons.
func (l *hierarchy) source(kind string) (source, error) {
	own := l.own
	if l.hands(own, kind) {
		return source{base: own}, nil
	}
	if isRoot(own) {
		return source{base: own, enable: true}, nil
	}
	if filepath.Base(own) == runnerLeaf && l.hands(filepath.Dir(own), kind) {
		return source{base: filepath.Dir(own)}, nil // claimed by this runner, or by one that started it
	}
	if err := unix.Access(filepath.Join(own, "cgroup.subtree_control"), unix.W_OK); err == nil {
		members := words(filepath.Join(own, "cgroup.procs"))
		if len(members) == 0 || len(members) == 1 && members[0] == fmt.Sprint(os.Getpid()) {
			return source{base: own, enable: true, claim: len(members) == 1}, nil
		}
	}
	for dir := own; dir != l.mount; {
		if limited(dir) {
			return source{}, fmt.Errorf("cgroup %s has other processes in it, so it cannot hand out controllers, "+
				"and sets limits of its own", dir)
		}
		dir = filepath.Dir(dir)
		if l.hands(dir, kind) && unix.Access(dir, unix.W_OK) == nil &&
			unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil {
			return source{base: dir}, nil
		}
	}
	return source{}, fmt.Errorf("cgroup %s has other processes in it, so it cannot hand out controllers, and no "+
		"writable cgroup above it does", own)
}

func (l *hierarchy) hands(dir, kind string) bool {
	return slices.Contains(words(filepath.Join(dir, "cgroup.subtree_control")), kind)
}

// isRoot reports whether dir is the host's root cgroup, also in a cgroup namespace: only
// that one has no cgroup.type.
func isRoot(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.type"))
	return errors.Is(err, os.ErrNotExist)
}

// limited reports whether a cgroup sets a limit that its processes would escape
// by leaving it.
func limited(dir string) bool {
	for _, f := range []string{"memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max"} {
		if w := words(filepath.Join(dir, f)); len(w) > 0 && w[0] != "max" {
			return true
		}
	}
	return false
}

// claim makes base able to hand out controllers: it moves this process, and
// nobody else, into a leaf, and switches the controllers on. The returned undo
// is safe to call while others use base: the kernel then refuses (EBUSY), and
// things stay as they are.
func claim(base string, move bool, kinds []string) (undo func(), err error) {
	leaf := filepath.Join(base, runnerLeaf)
	var on []string
	moved := false
	undo = func() {
		for _, k := range on {
			_ = write(filepath.Join(base, "cgroup.subtree_control"), "-"+k)
		}
		if !moved {
			return
		}
		// Children that the runner started meanwhile are in the leaf as well.
		for _, pid := range words(filepath.Join(leaf, "cgroup.procs")) {
			_ = write(filepath.Join(base, "cgroup.procs"), pid)
		}
		_ = os.Remove(leaf)
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	if move {
		if err := makeDir(leaf); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		moved = true
		if err := write(filepath.Join(leaf, "cgroup.procs"), "0"); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		if err := write(filepath.Join(base, "cgroup.subtree_control"), "+"+k); err != nil {
			return nil, err
		}
		on = append(on, k)
	}
	return undo, nil
}

const remedyUnit = "systemd-run --scope -p Delegate=yes assay-run ... (with --user unless root)"

// unit is the directory of the systemd unit, a service or scope, that a cgroup
// belongs to; empty where there is none.
func (l *hierarchy) unit(dir string) string {
	for ; dir != l.mount && strings.HasPrefix(dir, l.mount); dir = filepath.Dir(dir) {
		if ext := filepath.Ext(dir); ext == ".service" || ext == ".scope" {
			return dir
		}
	}
	return ""
}

// delegable reports whether systemd could hand a controller to the unit that the
// runner is in: a cgroup above that is ours to change has it.
func (l *hierarchy) delegable(kind string) bool {
	dir := l.unit(l.own)
	for dir != "" && dir != l.mount {
		dir = filepath.Dir(dir)
		if slices.Contains(words(filepath.Join(dir, "cgroup.controllers")), kind) &&
			unix.Access(dir, unix.W_OK) == nil {
			return true
		}
	}
	return false
}

// oomStops says why a session below base ends when the kernel's OOM killer kills one of its processes:
// systemd counts such kills in its units and by default stops a unit that is not delegated
// (systemd.service(5), OOMPolicy=). It marks the delegated ones (CGROUP_DELEGATION.md), but a user's
// systemd does not, so the result is empty for its units.
func (l *hierarchy) oomStops(base string) string {
	unit := l.unit(base)
	if unit == "" || strings.Contains(unit, "/user@") || os.Geteuid() != 0 {
		return ""
	}
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(unit, name, value); err == nil && string(value[:n]) == "1" {
			return ""
		}
	}
	return fmt.Sprintf("systemd does not delegate the unit %s: by default it stops the unit, and the run with it, "+
		"when the kernel kills a process at the memory limit", unit)
}

// useful reports whether a v1 hierarchy limits or counts something, or, without cgroup2,
// can hold all of a session's processes.
func (l *hierarchy) useful(beside2 bool) bool {
	of := []string{"memory", "pids", "cpu", "blkio"}
	if !beside2 {
		of = append(of, "cpuacct", "freezer")
	}
	return slices.ContainsFunc(l.controllers, func(c string) bool { return slices.Contains(of, c) })
}
