package leaktest

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// processes names the live processes that the tests started.
func (c *checked) processes() (left []string) {
	self := started("/proc/self/stat")
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		dir := filepath.Dir(path)
		pid := filepath.Base(dir)
		stat, err := os.ReadFile(path)
		i := bytes.LastIndexByte(stat, ')')
		f := strings.Fields(string(stat[i+1:]))
		if err != nil || len(f) < 2 || f[0] == "X" || pid == strconv.Itoa(os.Getpid()) ||
			pid == strconv.Itoa(os.Getppid()) {
			continue
		}
		// A zombie does not count. If no cgroup is writable, this process adopts the
		// processes of killed runners: they have ended, and only need to be waited for.
		child := f[1] == strconv.Itoa(os.Getpid())
		if f[0] != "Z" && (child || started(path) >= self && c.knows(dir)) {
			cmdline, _ := os.ReadFile(dir + "/cmdline")
			left = append(left, fmt.Sprintf("process %s %s: %.200q", pid, stat[:i+3],
				bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return left
}

// started returns when a process started, in clock ticks since boot: field 22 of
// proc_pid_stat(5).
func started(stat string) uint64 {
	b, _ := os.ReadFile(stat)
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(f[19], 10, 64)
	return n
}

// knows reports whether a process is this test binary in another role, has the tests'
// temporary directory in its environment or command line, or works in it.
func (c *checked) knows(proc string) bool {
	self, err1 := os.Stat("/proc/self/exe")
	exe, err2 := os.Stat(proc + "/exe")
	if err1 == nil && err2 == nil && os.SameFile(self, exe) {
		return true
	}
	for _, name := range []string{"/environ", "/cmdline"} {
		if b, err := os.ReadFile(proc + name); err == nil && bytes.Contains(b, []byte(c.dir)) {
			return true
		}
	}
	cwd, err := os.Readlink(proc + "/cwd")
	return err == nil && (cwd == c.dir || strings.HasPrefix(cwd, c.dir+"/"))
}

// descriptors are the open descriptors of this process, by number, and what they refer
// to. A BPF link is named by its id.
func descriptors() map[string]string {
	m := map[string]string{}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return m
	}
	for _, e := range dir {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue
		}
		if strings.Contains(to, "bpf") {
			info, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name())
			for sc := bufio.NewScanner(bytes.NewReader(info)); sc.Scan(); {
				if k, v, _ := strings.Cut(sc.Text(), ":"); strings.HasSuffix(k, "_id") && k != "mnt_id" {
					to += " " + k + " " + strings.TrimSpace(v)
				}
			}
		}
		m[e.Name()] = to
	}
	return m
}

func (c *checked) descriptors() (left []string) {
	for fd, to := range descriptors() {
		// the poller's own
		if c.open[fd] != to && !strings.Contains(to, "[eventpoll]") && !strings.Contains(to, "[eventfd]") {
			left = append(left, "descriptor "+fd+": "+to)
		}
	}
	return left
}

// goroutines returns the stacks of the goroutines that run this module's code.
func goroutines() (left []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for i, s := range strings.Split(string(stacks), "\n\n") {
		if i > 0 && strings.Contains(s, "github.com/assay-run/assay-run/") {
			left = append(left, s)
		}
	}
	return left
}

// files names the files in the temporary directory and below it.
func (c *checked) files() (left []string) {
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == c.dir:
			return nil
		case strings.HasPrefix(d.Name(), "go-build"): // go run and go test leave it when they are killed
			return fs.SkipDir
		case strings.HasPrefix(d.Name(), "go-test-script") && filepath.Dir(path) == c.dir:
			return nil // testscript leaves an empty one unless all scripts run
		case len(left) == 20:
			left = append(left, "file ...")
			return fs.SkipAll
		}
		left = append(left, "file "+path)
		return nil
	})
	return left
}
