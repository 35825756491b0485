//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

func init() {
	// mapmemory PIN: maps the memory of a pinned BPF array, to write to it.
	children["mapmemory"] = func(args []string) {
		m, err := ebpf.LoadPinnedMap(args[0], nil)
		check("load", err)
		_, err = mapArray(m)
		check("map", err)
	}
	// progcall COMMAND CGROUP PIN: attaches (8) a pinned program of cgroup_skb to a
	// cgroup, or detaches (9) it; "own" is one that it loads itself, "none" names none.
	children["progcall"] = func(args []string) {
		dir, err := os.Open(args[1])
		check("open", err)
		var p *ebpf.Program
		var fd int
		switch args[2] {
		case "none":
		case "own":
			p = passing()
			fd = p.FD()
		default:
			p, err = ebpf.LoadPinnedProgram(args[2], nil)
			check("load", err)
			fd = p.FD()
		}
		for _, command := range strings.Split(args[0], ",") {
			n, _ := strconv.Atoi(command)
			attr := struct{ target, prog, kind, flags uint32 }{uint32(dir.Fd()), uint32(fd), uint32(ebpf.AttachCGroupInetEgress), 0}
			_, _, e := unix.Syscall(unix.SYS_BPF, uintptr(n), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			if e != 0 {
				check("bpf "+command, e)
			}
		}
		runtime.KeepAlive(p)
	}
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

// An engine removes the cgroup of a container that has ended, and with it what the
// session had there.
func TestARemovedCgroupIsNoTampering(t *testing.T) {
	s := observe(t, Config{SelfTest: true})
	s.run(s.command("/bin/true"))
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	detached := func() bool { // the kernel does it later
		return s.o.loaded.maps["homes"].Lookup(s.o.loaded.seat.cgroup, new(uint64)) != nil && !stillAttached(s.o.loaded.own["connect4"], s.o.loaded.progs["connect4"])
	}
	if !leaktest.Within(time.Minute, detached) {
		t.Fatal("the kernel keeps the programs of a cgroup that is gone")
	}
	s.o.look()
	if err := os.Mkdir(s.path, 0o755); err != nil { // another one of that name
		t.Fatal(err)
	}
	if err := s.o.Stop(); err != nil {
		t.Error(err)
	}
	<-s.done
	for _, r := range s.o.Report().Reasons {
		if r.Code == CodeTampered || r.Code == CodeHookLost {
			t.Errorf("%+v", r)
		}
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
	program, away, theirs := filepath.Join(myPlace(t).home, "program"), newCgroup(t), newCgroup(t)
	p := passing()
	defer p.Close()
	if err := p.Pin(program); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupInetEgress}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(foreign); os.Remove(home); os.Remove(program) })
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
		{"somebody else's program, attached", func(*session) [][]string { return [][]string{{"progcall", "8", away, program}} }, false},
		{"its own program, attached and detached", func(*session) [][]string { return [][]string{{"progcall", "8,9", away, "own"}} }, true},
		{"a program that is not named, detached", func(*session) [][]string { return [][]string{{"progcall", "9", theirs, "none"}} }, false},
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
				if args[0] == "progcall" {
					s.run(s.child("progcall", args[1:]...))
					continue
				}
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

// passing is a program for a cgroup's packets that lets all pass.
func passing() *ebpf.Program {
	return must(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSKB, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}))
}
