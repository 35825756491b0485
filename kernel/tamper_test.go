//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// What root does to the observer with bpftool does not pass for a complete run.
func TestTamperingIsFound(t *testing.T) {
	withoutKeptObserver(t)
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
	ok := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
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
			bpftool(slices.Concat([]string{"map", "delete", "id", strconv.Itoa(int(l.made.Maps["numbers"])), "key"},
				u64(l.slot.cgroup))...)
		}},
		{"its ring is replaced", CodeTampered, func(s *session) {
			l := s.o.loaded
			name := filepath.Join(myPinDir(t).home, "attack")
			bpftool("map", "create", name, "type", "ringbuf", "key", "0", "value", "0", "entries", "65536", "name",
				"ring")
			defer os.Remove(name)
			bpftool(slices.Concat([]string{"map", "update", "id", strconv.Itoa(int(l.made.Maps["rings"])), "key",
				"hex"},
				u64(uint64(l.slot.number * lanes))[1:5], []string{"value", "pinned", name})...)
			if err := l.maps["rings"].Put(l.slot.number*lanes, l.slot.rings[laneUrgent]); err != nil {
				t.Fatal(err)
			}
		}},
		{"a counter is written", CodeMissing, func(s *session) {
			cells := s.o.loaded.slot.cells()
			cells[HookOpen].Emitted += 3
			cells[HookOpen].Fired += 3
		}},
		{"a pinned link is removed", CodeTampered, func(s *session) {
			if err := os.Remove(filepath.Join(myPinDir(t).dir(), pinName("link", "sys_exit"))); err != nil {
				t.Fatal(err)
			}
		}},
		{"a pinned link is replaced", CodeTampered, func(s *session) {
			pin := filepath.Join(myPinDir(t).dir(), pinName("link", "sys_exit"))
			ok(os.Remove(pin), s.o.loaded.links["forked"].Pin(pin))
		}},
		{"a pinned program is replaced", CodeTampered, func(s *session) {
			pin, p := filepath.Join(myPinDir(t).dir(), pinName("prog", "skb_out")), passing()
			defer p.Close()
			ok(os.Remove(pin), p.Pin(pin))
		}},
		{"a pinned map is replaced", CodeTampered, func(s *session) {
			pin := filepath.Join(myPinDir(t).dir(), pinName("map", "members"))
			ok(os.Remove(pin))
			bpftool("map", "pin", "id", strconv.Itoa(int(s.o.loaded.made.Maps["numbers"])), pin)
		}},
		{"the manifest is removed", CodeTampered, func(*session) {
			ok(os.Remove(filepath.Join(myPinDir(t).dir(), "manifest")))
		}},
		{"the manifest is replaced", CodeTampered, func(s *session) {
			pin := filepath.Join(myPinDir(t).dir(), "manifest")
			ok(os.Remove(pin))
			bpftool("map", "pin", "id", strconv.Itoa(int(s.o.loaded.made.Maps["numbers"])), pin)
			if s.o.loaded.tamperedPins() == "" { // not only the listing of the directory tells
				s.t.Error("another map passes for the manifest")
			}
		}},
		{"all that is pinned is removed", CodeTampered, func(*session) { ok(os.RemoveAll(myPinDir(t).dir())) }},
		{"a link's program is replaced", CodeHookLost, func(s *session) {
			p := passing()
			defer p.Close()
			ok(s.o.loaded.own["skb_out"].Update(p))
		}},
		{"its entry is emptied", CodeTampered, func(s *session) {
			atomic.StoreUint64(&s.o.loaded.session(s.o.loaded.slot.number).Cgroup, 0)
		}},
		{"its socket programs are given to another", CodeTampered, func(s *session) {
			ok(s.o.loaded.maps["homes"].Put(s.o.loaded.slot.cgroup, uint64(s.o.loaded.slot.number)+2))
		}},
		{"the programs' settings are changed", CodeTampered, func(s *session) {
			changed := slices.Clone(s.o.loaded.bss)
			changed[0]++
			ok(s.o.loaded.maps[".bss"].Put(uint32(0), changed))
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
			if left := pinned(t, myPinDir(t).name); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// An engine removes the cgroup of a container that has ended, and with it what the
// session had there.
func TestARemovedCgroupIsNoTampering(t *testing.T) {
	withoutKeptObserver(t)
	s := observe(t, Config{SelfTest: true})
	s.run(s.command("/bin/true"))
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	detached := func() bool { // the kernel does it later
		return s.o.loaded.maps["homes"].Lookup(s.o.loaded.slot.cgroup, new(uint64)) != nil &&
			!stillAttached(s.o.loaded.own["connect4"], s.o.loaded.made.Progs["connect4"])
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
	withoutKeptObserver(t)
	s := observe(t, Config{})
	l := s.o.loaded
	if err := errors.Join(l.maps["numbers"].Delete(l.slot.cgroup),
		l.own["skb_out"].Update(l.progs["skb_in"])); err != nil {
		t.Fatal(err)
	}
	noticed := func() bool {
		s.o.mu.Lock()
		defer s.o.mu.Unlock()
		return len(s.o.tampered) > 0 && len(s.o.lost) > 0
	}
	if !leaktest.Within(time.Minute, noticed) {
		t.Error("the timer does not look")
	}
	if err := errors.Join(l.maps["numbers"].Put(l.slot.cgroup, l.slot.number),
		l.own["skb_out"].Update(l.progs["skb_out"])); err != nil {
		t.Fatal(err)
	}
	s.end()
	for _, code := range []string{CodeTampered, CodeHookLost} {
		if !slices.ContainsFunc(s.report.Reasons, func(r Reason) bool { return r.Code == code }) {
			t.Errorf("no %s: %+v", code, s.report.Reasons)
		}
	}
}

// A set that is not whole is made anew when nobody is in it.
func TestBrokenSetIsMadeAnew(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
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
	withoutKeptObserver(t)
	p := myPinDir(t)
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
