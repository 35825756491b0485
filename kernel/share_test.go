//go:build linux && (amd64 || arm64)

package kernel

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func init() {
	// sit CGROUP: observes it until its input ends, and says how.
	children["sit"] = func(args []string) {
		o, err := Open(context.Background(), Config{CgroupPath: args[0]})
		check("open", err)
		done := make(chan error)
		go func() { done <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
		r := o.Report()
		fmt.Printf("shared=%v %s\n", r.Shared, r.Alone)
		io.Copy(io.Discard, os.Stdin)
		check("stop", o.Stop())
		check("read", <-done)
		r = o.Report()
		check("close", o.Close())
		fmt.Printf("%d reasons %+v\n", len(r.Reasons), r.Reasons)
		putting.Wait()
	}
	// mapmemory PIN: maps the memory of a pinned BPF array, to write to it.
	children["mapmemory"] = func(args []string) {
		m, err := ebpf.LoadPinnedMap(args[0], nil)
		check("load", err)
		_, err = mapArray(m)
		check("map", err)
	}
	// openeach DIR N: opens the files 0 to N-1 of a directory once.
	children["openeach"] = func(args []string) {
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			fd, err := syscall.Open(filepath.Join(args[0], strconv.Itoa(i)), syscall.O_RDONLY|syscall.O_CREAT, 0o600)
			check("open", err)
			syscall.Close(fd)
		}
	}
}

// sitter is a process that observes a cgroup.
type sitter struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Scanner
	said  string
}

func sit(t testing.TB, exe, cgroup string, attr *syscall.SysProcAttr) *sitter {
	t.Helper()
	c := exec.Command(exe, cgroup)
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=sit")
	c.Stderr = os.Stderr
	c.SysProcAttr = attr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &sitter{cmd: c, input: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if s.lines.Scan() {
		s.said = s.lines.Text()
	}
	return s
}

// rise ends it and returns what it found.
func (s *sitter) rise(t testing.TB) string {
	t.Helper()
	s.input.Close()
	s.lines.Scan()
	found := s.lines.Text()
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, found)
	}
	return found
}

// pinned lists what is pinned for a build.
func pinned(t testing.TB, name string) []string {
	t.Helper()
	p, err := findPlace()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(p.home)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name) {
			out = append(out, e.Name())
		}
	}
	return out
}

func myPlace(t testing.TB) site {
	t.Helper()
	p, err := findPlace()
	if err != nil {
		t.Skipf("cannot share: %v", err)
	}
	return p
}

// Fifty sessions at once are observed by one set of programs, each exactly.
func TestManySessionsShareOneObserver(t *testing.T) {
	p := myPlace(t)
	const sessions, files = 50, 200
	all := make([]*session, sessions)
	for i := range all {
		all[i] = observe(t, Config{RingBytes: 256 << 10})
		if !all[i].o.Report().Shared {
			t.Fatalf("session %d: %s", i, all[i].o.Report().Alone)
		}
	}
	if a, b := all[0].o.loaded.made, all[sessions-1].o.loaded.made; a.differs(b) != "" {
		t.Fatalf("they differ in %s", a.differs(b))
	}
	var wg sync.WaitGroup
	dirs := make([]string, sessions)
	for i, s := range all {
		dirs[i] = t.TempDir()
		wg.Go(func() {
			if out, err := s.child("openeach", dirs[i], strconv.Itoa(files)).Output(); err != nil {
				t.Errorf("session %d: %v %s", i, err, out)
			}
		})
	}
	wg.Wait()
	for i, s := range all {
		s.end()
		var own, foreign int
		for _, e := range s.find(KindOpen, nil) {
			switch path := string(e.Path); {
			case strings.HasPrefix(path, dirs[i]+"/"):
				own += int(e.Count)
			case slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(path, d+"/") }):
				foreign++
			}
		}
		if own != files || foreign != 0 {
			t.Errorf("session %d: %d of %d opens, %d of others", i, own, files, foreign)
		}
		if n := len(s.find(KindExit, nil)); n != 1 || len(s.report.Reasons) != 0 {
			t.Errorf("session %d: %d exits, %+v", i, n, s.report.Reasons)
		}
		s.o.Close()
	}
	if left := pinned(t, p.name); len(left) != 0 {
		t.Errorf("the last one left %v", left)
	}
}

// A session that is never read and floods its ring takes nothing from another, and
// the ring for what is rare has room for its own execs.
func TestAFloodDrownsNobody(t *testing.T) {
	quiet := observe(t, Config{})
	path := newCgroup(t)
	o, err := Open(t.Context(), Config{CgroupPath: path, RingBytes: MinRing})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	loud := &session{t: t, path: path, o: o, done: make(chan error, 1)}
	if loud.dir, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	defer loud.dir.Close()
	dir := t.TempDir()
	loud.run(loud.child("openeach", dir, "5000"))
	loud.run(loud.command("/bin/sh", "-c", "/bin/true; exit 0"))
	quiet.run(quiet.child("openeach", t.TempDir(), "300"))
	go func() {
		loud.done <- o.Read(func(e *Event) error { loud.events = append(loud.events, clone(e)); return nil }, func(uint64) {})
	}()
	loud.end()
	quiet.end()
	h := loud.report.Hooks[HookOpen]
	if h.Dropped == 0 {
		t.Errorf("the flood fitted in: %+v", h.Counts)
	}
	if execs := loud.find(KindExec, nil); len(execs) != 3 || loud.report.Hooks[HookExec].Dropped+loud.report.Hooks[HookExit].Dropped+loud.report.Hooks[HookFork].Dropped != 0 {
		t.Errorf("%d execs of 3 came through the flood", len(execs))
	}
	if slices.ContainsFunc(loud.report.Reasons, func(r Reason) bool { return r.Code == CodeMissing }) {
		t.Errorf("what was dropped passes for missing: %+v", loud.report.Reasons)
	}
	if quiet.report.Hooks[HookOpen].Dropped != 0 || len(quiet.report.Reasons) != 0 {
		t.Errorf("the other session: %+v", quiet.report.Reasons)
	}
}

// A session that is nested in another is seen by both.
func TestNestedSessions(t *testing.T) {
	outer := observe(t, Config{})
	below := filepath.Join(outer.path, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(below) })
	o, err := Open(t.Context(), Config{CgroupPath: below})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	inner := &session{t: t, path: below, o: o, done: make(chan error, 1)}
	if inner.dir, err = os.Open(below); err != nil {
		t.Fatal(err)
	}
	defer inner.dir.Close()
	go func() {
		inner.done <- o.Read(func(e *Event) error { inner.events = append(inner.events, clone(e)); return nil }, func(uint64) {})
	}()
	dir := t.TempDir()
	inner.run(inner.command("/bin/sh", "-c", "echo > "+dir+"/deep; mv "+dir+"/deep "+dir+"/moved"))
	outer.run(outer.command("/bin/sh", "-c", "echo > "+dir+"/shallow"))
	inner.end()
	outer.end()
	for _, c := range []struct {
		name        string
		s           *session
		deep, plain int
	}{{"outer", outer, 1, 1}, {"inner", inner, 1, 0}} {
		if n := len(c.s.find(KindOpen, path(dir+"/deep"))); n != c.deep {
			t.Errorf("%s: %d opens below", c.name, n)
		}
		if n := len(c.s.find(KindRename, path(dir+"/deep"))); n != c.deep {
			t.Errorf("%s: %d renames below", c.name, n)
		}
		if n := len(c.s.find(KindOpen, path(dir+"/shallow"))); n != c.plain {
			t.Errorf("%s: %d opens beside", c.name, n)
		}
		if len(c.s.report.Reasons) != 0 {
			t.Errorf("%s: %+v", c.name, c.s.report.Reasons)
		}
	}
}

// Runs that start, end and are killed at the same moments never meet a set that is
// torn, and leave nothing once they are swept.
func TestKilledRunsLeaveNothing(t *testing.T) {
	p := myPlace(t)
	var wg sync.WaitGroup
	for worker := range 6 {
		cgroup := newCgroup(t)
		wg.Go(func() {
			for i := range 8 {
				s := sit(t, "/proc/self/exe", cgroup, nil)
				if !strings.HasPrefix(s.said, "shared=true") {
					t.Errorf("worker %d: %q", worker, s.said)
				}
				if (i+worker)%3 == 0 {
					s.cmd.Process.Kill()
					s.cmd.Wait()
				} else if found := s.rise(t); !strings.HasPrefix(found, "0 reasons") {
					t.Errorf("worker %d: %s", worker, found)
				}
			}
		})
	}
	wg.Wait()
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	s.cmd.Process.Kill()
	s.cmd.Wait()
	if len(pinned(t, p.name)) == 0 {
		t.Error("the killed run took the set with it")
	}
	if _, sets, err := Sweep(); err != nil || sets == 0 {
		t.Errorf("%d sets swept, %v", sets, err)
	}
	if left := pinned(t, p.name); len(left) != 0 {
		t.Errorf("swept, and left %v", left)
	}
}

// A seat of a killed run is freed by the next run while others go on.
func TestSeatOfAKilledRunIsFreed(t *testing.T) {
	s := observe(t, Config{})
	dead := sit(t, "/proc/self/exe", newCgroup(t), nil)
	dead.cmd.Process.Kill()
	dead.cmd.Wait()
	taken := func() (n int) {
		for i := range uint32(maxSeats) {
			if s.o.loaded.session(i).Cgroup != 0 {
				n++
			}
		}
		return n
	}
	if taken() != 2 {
		t.Fatalf("%d seats are taken", taken())
	}
	next := observe(t, Config{})
	if taken() != 2 || next.o.loaded.seat.number == 1 {
		t.Errorf("%d seats are taken, the next run has number %d", taken(), next.o.loaded.seat.number)
	}
	next.end()
	s.end()
}

// Another build has a set of its own beside this one's.
func TestBuildsLiveSideBySide(t *testing.T) {
	p := myPlace(t)
	other := filepath.Join(t.TempDir(), "other")
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	note := e.Section(".note.go.buildid")
	if note == nil {
		t.Skip("linked without a build id")
	}
	raw[note.Offset+note.Size-8] ^= 1
	if err := os.WriteFile(other, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	mine := observe(t, Config{})
	theirs := sit(t, other, newCgroup(t), nil)
	if !strings.HasPrefix(theirs.said, "shared=true") {
		t.Fatal(theirs.said)
	}
	if n := len(pinned(t, p.name)); n != 2 { // the set and its lock
		t.Errorf("%d entries of this build", n)
	}
	if n := len(pinned(t, "")); n < 4 {
		t.Errorf("%d entries of both builds", n)
	}
	mine.run(mine.command("/bin/true"))
	if found := theirs.rise(t); !strings.HasPrefix(found, "0 reasons") {
		t.Error(found)
	}
	mine.end()
	if len(mine.report.Reasons) != 0 {
		t.Errorf("%+v", mine.report.Reasons)
	}
}

// Where there is no BPF file system to be had, and inside of another session, a run
// loads programs of its own and says why.
func TestAlone(t *testing.T) {
	outer := observe(t, Config{})
	in := sit(t, "/proc/self/exe", newCgroup(t), &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(outer.dir.Fd())})
	if in.said != "shared=false "+errNested.Error() {
		t.Errorf("in a session: %q", in.said)
	}
	if found := in.rise(t); !strings.HasPrefix(found, "0 reasons") {
		t.Error(found)
	}
	outer.end()
	if len(outer.report.Reasons) != 0 {
		t.Errorf("the outer run: %+v", outer.report.Reasons)
	}

	script := "mount -t tmpfs -o ro none /run && mount -t tmpfs none /sys/fs/bpf && exec /proc/self/exe"
	c := exec.Command("unshare", "-m", "/bin/sh", "-c", strings.Replace(script, "/proc/self/exe", "\"$0\" \"$1\"", 1), must(os.Executable()), newCgroup(t))
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=sit")
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "shared=false no BPF file system is mounted on /sys/fs/bpf, and none can be") || !strings.Contains(string(out), "0 reasons") {
		t.Errorf("without bpffs: %v %s", err, out)
	}

	home := myPlace(t).home
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.said, "is not a directory that only root can write to") {
		t.Errorf("with a directory that others can write: %q", s.said)
	}
	s.rise(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What root does to the observer with bpftool does not pass for a complete run.
func TestTamperingIsFound(t *testing.T) {
	tool, err := exec.LookPath("bpftool")
	if err != nil {
		t.Skipf("no bpftool: %v", err)
	}
	bpftool := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Fatalf("bpftool %v: %v %s", args, err, out)
		}
	}
	u64 := func(v uint64) (hex []string) {
		for i := range 8 {
			hex = append(hex, fmt.Sprintf("%#x", byte(v>>(8*i))))
		}
		return append([]string{"hex"}, hex...)
	}
	for _, c := range []struct {
		name, code string
		attack     func(s *session)
	}{
		{"a cgroup link is detached", CodeHookLost, func(s *session) {
			info, err := s.o.loaded.own["connect4"].Info()
			if err != nil {
				t.Fatal(err)
			}
			bpftool("link", "detach", "id", strconv.Itoa(int(info.ID)))
		}},
		{"the session's cgroup is taken out", CodeTampered, func(s *session) {
			l := s.o.loaded
			bpftool(slices.Concat([]string{"map", "delete", "id", strconv.Itoa(int(l.made.Maps["numbers"])), "key"}, u64(l.seat.cgroup))...)
		}},
		{"its ring is replaced", CodeTampered, func(s *session) {
			l := s.o.loaded
			name := filepath.Join(myPlace(t).home, "attack")
			bpftool("map", "create", name, "type", "ringbuf", "key", "0", "value", "0", "entries", "65536", "name", "ring")
			defer os.Remove(name)
			bpftool(slices.Concat([]string{"map", "update", "id", strconv.Itoa(int(l.made.Maps["rings"])), "key", "hex"},
				u64(uint64(l.seat.number * lanes))[1:5], []string{"value", "pinned", name})...)
			if err := l.maps["rings"].Put(l.seat.number*lanes, l.seat.rings[laneUrgent]); err != nil {
				t.Fatal(err)
			}
		}},
		{"a counter is written", CodeMissing, func(s *session) {
			cells := s.o.loaded.seat.cells()
			cells[HookOpen].Emitted += 3
			cells[HookOpen].Fired += 3
		}},
		{"a pinned link is removed", CodeTampered, func(s *session) {
			if err := os.Remove(filepath.Join(myPlace(t).dir(), pinName("link", "sys_exit"))); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(&session{t: t}, Config{})
			s.run(s.command("/bin/true"))
			c.attack(s)
			if err := s.o.Stop(); err != nil {
				t.Log(err)
			}
			<-s.done
			r := s.o.Report()
			if !slices.ContainsFunc(r.Reasons, func(r Reason) bool { return r.Code == c.code }) {
				t.Errorf("%+v", r.Reasons)
			}
			s.o.Close()
			Sweep()
			if left := pinned(t, myPlace(t).name); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// A change that is undone again is met by the timer.
func TestTamperingMeanwhileIsFound(t *testing.T) {
	s := observe(t, Config{})
	l := s.o.loaded
	if err := l.maps["numbers"].Delete(l.seat.cgroup); err != nil {
		t.Fatal(err)
	}
	time.Sleep(checkInterval + checkInterval/2)
	if err := l.maps["numbers"].Put(l.seat.cgroup, l.seat.number); err != nil {
		t.Fatal(err)
	}
	s.end()
	if !slices.ContainsFunc(s.report.Reasons, func(r Reason) bool { return r.Code == CodeTampered }) {
		t.Errorf("%+v", s.report.Reasons)
	}
}

// A set that is not whole is made anew when nobody is in it.
func TestBrokenSetIsMadeAnew(t *testing.T) {
	p := myPlace(t)
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	s.cmd.Process.Kill()
	s.cmd.Wait()
	if err := os.Remove(filepath.Join(p.dir(), pinName("link", "forked"))); err != nil {
		t.Fatal(err)
	}
	next := observe(t, Config{})
	next.run(next.command("/bin/true"))
	next.end()
	if r := next.report; !r.Shared || len(r.Reasons) != 0 {
		t.Errorf("%v %+v", r.Shared, r.Reasons)
	}
	if _, err := os.Stat(filepath.Join(p.dir(), pinName("link", "forked"))); err != nil {
		t.Error(err)
	}
}

// The kernel forgets what nothing pins: a lock that is dropped is no longer there.
func TestLocksDieWithTheirHolder(t *testing.T) {
	p := myPlace(t)
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	if _, err := lockDir(p.lock(), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		t.Error("the set's lock can be had while a run holds it")
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	f, err := lockDir(p.lock(), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	Sweep()
}

// A run that lists BPF objects, and makes and changes its own, is complete. One that
// changes somebody else's is not, also through their memory.
func TestBPFCallsOfTheRun(t *testing.T) {
	tool, err := exec.LookPath("bpftool")
	if err != nil {
		t.Skipf("no bpftool: %v", err)
	}
	home := filepath.Join(myPlace(t).home, "mine")
	foreign := filepath.Join(myPlace(t).home, "foreign")
	create := []string{"map", "create", "type", "array", "key", "4", "value", "4", "entries", "1", "name", "x", "flags", "1024"}
	update := func(path string) []string {
		return []string{"map", "update", "pinned", path, "key", "0", "0", "0", "0", "value", "1", "0", "0", "0"}
	}
	if out, err := exec.Command(tool, slices.Insert(slices.Clone(create), 2, foreign)...).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	t.Cleanup(func() { os.Remove(foreign); os.Remove(home) })
	for _, c := range []struct {
		name  string
		calls func(s *session) [][]string
		whole bool
	}{
		{"lists", func(*session) [][]string { return [][]string{{"prog", "list"}, {"link", "list"}} }, true},
		{"its own map", func(*session) [][]string {
			return [][]string{slices.Insert(slices.Clone(create), 2, home), update(home)}
		}, true},
		{"somebody else's map", func(*session) [][]string { return [][]string{update(foreign)} }, false},
		{"somebody else's memory", func(*session) [][]string { return [][]string{{"memory", foreign}} }, false},
		{"the observer's map", func(s *session) [][]string {
			return [][]string{{"map", "update", "id", strconv.Itoa(int(s.o.loaded.made.Maps["numbers"])),
				"key", "255", "255", "255", "255", "255", "255", "255", "255", "value", "1", "0", "0", "0"}}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := observe(t, Config{})
			if r := s.o.Report(); !r.Shared {
				t.Fatal(r.Alone)
			}
			for _, args := range c.calls(s) {
				if args[0] == "memory" {
					s.run(s.child("mapmemory", args[1]))
					continue
				}
				s.run(s.command(tool, args...))
			}
			s.end()
			s.o.Close()
			changed := slices.ContainsFunc(s.report.Reasons, func(r Reason) bool { return r.Code == CodeBPF })
			if changed == c.whole || c.whole && len(s.report.Reasons) != 0 {
				t.Errorf("%+v", s.report.Reasons)
				for _, e := range s.find(KindBPF, nil) {
					t.Logf("command %d, errno %d: %+v", e.Args[0], e.Errno, e.BPF)
				}
			}
		})
	}
}
