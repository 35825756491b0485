package dirs

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

// mount is where a hierarchy is mounted, also one that is of no use to us.
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
				v2 = &hierarchy{v2: true, mount: dir, own: own, controllers: words(filepath.Join(own, "cgroup.controllers"))}
			}
		case "cgroup":
			var cs []string
			for _, opt := range strings.Split(g[2], ",") {
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

// Of is the cgroup2 directory of a process, where one is mounted that shows it.
func Of(pid int) (dir string, ok bool) {
	m, err := memberOf(strconv.Itoa(pid))
	if err != nil {
		return "", false
	}
	return At(m.unified)
}

// At is the directory of a path in the cgroup2 hierarchy, as proc_pid_cgroup(5)
// writes it, where one is mounted that shows it.
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
