//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

func init() {
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

// Fifty sessions at once are observed by one set of programs, each exactly.
func TestManySessionsShareOneObserver(t *testing.T) {
	layertest.Host(t)
	withoutKeptObserver(t)
	p := myPinDir(t)
	sessions, files := 50, 200
	if testing.Short() { // as under emulation
		sessions = 10
	}
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
		for _, e := range s.find(schema.KindOpen, nil) {
			switch path := e.Value; {
			case strings.HasPrefix(path, dirs[i]+"/"):
				own += int(e.Count)
			case slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(path, d+"/") }):
				foreign++
			}
		}
		if own != files || foreign != 0 {
			t.Errorf("session %d: %d of %d opens, %d of others", i, own, files, foreign)
		}
		if n := len(s.find(schema.KindExit, nil)); n != 1 || len(s.report.Reasons) != 0 {
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
	layertest.Host(t)
	quiet := observe(t, Config{})
	path := newCgroup(t)
	o, err := Open(t.Context(), Config{CgroupPath: path, RingBytes: schema.MinKernelBuffer})
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
		loud.done <- o.Read(func(e *Event) error {
			loud.events = append(loud.events, clone(e))
			return nil
		}, func(uint64) {})
	}()
	loud.end()
	quiet.end()
	h := loud.report.Hooks[HookOpen]
	if h.Dropped == 0 {
		t.Errorf("the flood fitted in: %+v", h.Counts)
	}
	if execs := loud.find(schema.KindExec, nil); len(execs) != 3 ||
		loud.report.Hooks[HookExec].Dropped+loud.report.Hooks[HookExit].Dropped+
			loud.report.Hooks[HookFork].Dropped != 0 {
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
		inner.done <- o.Read(func(e *Event) error {
			inner.events = append(inner.events, clone(e))
			return nil
		}, func(uint64) {})
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
		if n := len(c.s.find(schema.KindOpen, path(dir+"/deep"))); n != c.deep {
			t.Errorf("%s: %d opens below", c.name, n)
		}
		if n := len(c.s.find(schema.KindRename, path(dir+"/deep"))); n != c.deep {
			t.Errorf("%s: %d renames below", c.name, n)
		}
		if n := len(c.s.find(schema.KindOpen, path(dir+"/shallow"))); n != c.plain {
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
	withoutKeptObserver(t)
	p := myPinDir(t)
	runs := 8
	if testing.Short() {
		runs = 3
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		cgroup := newCgroup(t)
		wg.Go(func() {
			for i := range runs {
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

// A slot of a killed run is freed by the next run while others go on.
func TestSlotOfAKilledRunIsFreed(t *testing.T) {
	withoutKeptObserver(t)
	s := observe(t, Config{})
	dead := sit(t, "/proc/self/exe", newCgroup(t), nil)
	dead.cmd.Process.Kill()
	dead.cmd.Wait()
	taken := func() (n int) {
		for i := range uint32(maxSlots) {
			if s.o.loaded.session(i).Cgroup != 0 {
				n++
			}
		}
		return n
	}
	if taken() != 2 {
		t.Fatalf("%d slots are taken", taken())
	}
	next := observe(t, Config{})
	if taken() != 2 || next.o.loaded.slot.number == 1 {
		t.Errorf("%d slots are taken, the next run has number %d", taken(), next.o.loaded.slot.number)
	}
	next.end()
	s.end()
}

// Another build has a set of its own beside this one's.
func TestBuildsLiveSideBySide(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
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
	withoutKeptObserver(t)
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
	c := exec.Command("unshare", "-m", "/bin/sh", "-c", strings.Replace(script, "/proc/self/exe", "\"$0\" \"$1\"", 1),
		must(os.Executable()), newCgroup(t))
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=sit")
	out, err := c.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out),
		"shared=false no BPF file system is mounted on /sys/fs/bpf, and none can be mounted") ||
		!strings.Contains(string(out), "0 reasons") {
		t.Errorf("without bpffs: %v %s", err, out)
	}

	home := myPinDir(t).home // another one here, since other runs of the host use that
	script = "mount -t bpf -o mode=700 none \"${2%/*}\" && mkdir -m 777 \"$2\" && exec \"$0\" \"$1\""
	c = exec.Command("unshare", "-m", "/bin/sh", "-c", script, must(os.Executable()), newCgroup(t), home)
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=sit")
	out, err = c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "is not a directory that only root can write to") {
		t.Errorf("with a directory that others can write: %v %s", err, out)
	}
}

// A set has the maps of a slot from the start: its first session makes none, and waits
// for none.
func TestFirstSlotComesWithTheSet(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	h := &lease{dir: p, set: must(lockMade(p.lock(), unix.LOCK_SH))}
	defer h.release()
	if _, err := os.Lstat(p.dir()); err == nil {
		t.Fatal("an earlier test left its observer")
	}
	made, err := p.open(schema.MinKernelBuffer)
	if err != nil {
		t.Fatal(err)
	}
	made.close()
	s, err := openSet(p.dir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	slot, err := s.takeSlot(h, schema.MinKernelBuffer)
	if err != nil {
		t.Fatal(err)
	}
	defer slot.close()
	if slot.number != 0 || len(slot.fresh) > 0 {
		t.Errorf("slot %d, of which %d maps are new", slot.number, len(slot.fresh))
	}
}

// What was preloaded for a run that does not begin goes away again, and PreloadIfPinned makes nothing.
func TestForgottenPreloadLeavesNothing(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	if inPlace() {
		t.Fatalf("%s is there", p.dir())
	}
	Preload(256 << 10)
	ready.mu.Lock()
	next := ready.next
	ready.mu.Unlock()
	got := <-next
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.loaded.lease == nil {
		t.Fatalf("it is not shared: %v", got.loaded.alone)
	}
	if !inPlace() {
		t.Errorf("%s is not found", p.dir())
	}
	next <- got
	DiscardPreload()
	if inPlace() {
		t.Errorf("%s is still there", p.dir())
	}
}
