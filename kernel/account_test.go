//go:build linux && (amd64 || arm64)

package kernel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reflect"
	"regexp"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/bpf"
	"github.com/assay-run/assay-run/schema"
)

// A reader that does nothing until the end makes a small ring overflow: what
// was lost is counted to the event.
func TestStalledReader(t *testing.T) {
	layertest.Host(t)
	n := 20000
	if testing.Short() {
		n = 4000
	}
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := newCgroup(t)
	o, err := Open(t.Context(), Config{CgroupPath: path, RingBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	s := &session{t: t, path: path, o: o, counting: true, done: make(chan error, 1)}
	if s.dir, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	defer s.dir.Close()
	s.run(s.child("distinct", dir, strconv.Itoa(n)))
	if err := o.Stop(); err != nil {
		t.Fatal(err)
	}
	opens := 0
	if err := o.Read(func(e *Event) error {
		if e.Kind == schema.KindOpen && strings.HasPrefix(e.Value, dir) {
			opens += int(e.Count)
		}
		return nil
	}, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	r := o.Report()
	checkAccount(t, r)
	h := r.Hooks[HookOpen]
	if h.Dropped == 0 {
		t.Error("nothing was dropped")
	}
	if h.Fired < uint64(n) {
		t.Errorf("fired %d times for %d opens", h.Fired, n)
	}
	if uint64(opens) > h.Emitted+h.Coalesced || uint64(opens)+h.Dropped < uint64(n) {
		t.Errorf("%d opens read, %d dropped, of %d", opens, h.Dropped, n)
	}
	found := false
	for _, reason := range r.Reasons {
		found = found || reason.Code == CodeDrops
	}
	if !found {
		t.Errorf("no reason says so: %+v", r.Reasons)
	}
}

// However slow the function is that gets the events, the ring is emptied and nothing is lost: each of three bursts fits
// into the ring, all of them do not, and memory has no room for them either.
func TestSlowReaderLosesNothing(t *testing.T) {
	const bursts, names = 3, 5000
	s := &session{t: t, path: newCgroup(t)}
	o, err := Open(t.Context(), Config{CgroupPath: s.path, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	if s.dir, err = os.Open(s.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.dir.Close() })
	all, done := make(chan struct{}), make(chan error, 1)
	seen := map[string]bool{}
	go func() {
		done <- o.Read(func(e *Event) error {
			<-all
			if e.Kind == schema.KindOpen && strings.HasPrefix(e.Value, "/none/") {
				seen[e.Value] = true
			}
			return nil
		}, func(uint64) {})
	}()
	for i := range bursts {
		s.run(s.child("missing", fmt.Sprintf("/none/%d/", i), strconv.Itoa(names)))
		for deadline := time.Now().Add(time.Minute); !empty(o.rd); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				close(all)
				t.Fatalf("burst %d is still in the ring, which nobody empties", i)
			}
		}
	}
	close(all)
	if err := errors.Join(o.Stop(), <-done); err != nil {
		t.Fatal(err)
	}
	r := o.Report()
	checkAccount(t, r)
	if n := r.Hooks[HookOpen].Dropped; n != 0 || len(seen) != bursts*names {
		t.Errorf("%d opens were dropped, and %d of %d delivered", n, len(seen), bursts*names)
	}
}

// empty reports whether everything was taken from the rings.
func empty(r *reader) bool {
	for _, ring := range r.rings {
		if atomic.LoadUint64(ring.consumer()) != atomic.LoadUint64(ring.producer()) {
			return false
		}
	}
	return true
}

// Repeats cost no records, and none goes uncounted.
func TestRepeatsAreCoalesced(t *testing.T) {
	n := 50000
	if testing.Short() {
		n = 5000
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := observe(t, Config{})
	s.run(s.child("opens", file, strconv.Itoa(n)))
	s.run(s.child("failing", file+".none", strconv.Itoa(n)))
	s.end()
	for _, p := range []string{file, file + ".none"} {
		var total, last uint64
		first := uint64(math.MaxUint64)
		got := s.find(schema.KindOpen, path(p))
		for _, e := range got {
			total += e.Count
			first, last = min(first, e.First), max(last, e.Last)
			if e.First > e.Last || e.Repeat && e.Count == 0 {
				t.Errorf("times of %s", describe(e))
			}
		}
		// One process may run on each CPU in turn; each has its own slots. Where descriptors are shared, the name is
		// compared with the file again after 256 jiffies, each of at least a millisecond.
		const jiffies = uint64(256 * time.Millisecond)
		if total != uint64(n) || len(got) > 2*runtime.NumCPU()*int(1+(last-first)/jiffies) {
			t.Errorf("%s: %d opens in %d events, want %d", p, total, len(got), n)
		}
	}
}

// Two observers see their own session only, and neither sees a stranger.
func TestSessionsDoNotMix(t *testing.T) {
	a, b := observe(t, Config{}), observe(t, Config{})
	dir := t.TempDir()
	a.run(a.command("/bin/sh", "-c", "echo > "+dir+"/a"))
	b.run(b.command("/bin/sh", "-c", "echo > "+dir+"/b"))
	if err := os.WriteFile(dir+"/c", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.end()
	b.end()
	for _, c := range []struct {
		s          *session
		own, other string
	}{{a, "/a", "/b"}, {b, "/b", "/a"}} {
		if len(c.s.find(schema.KindOpen, path(dir+c.own))) != 1 {
			t.Errorf("%s was not seen once", c.own)
		}
		if len(c.s.find(schema.KindOpen, path(dir+c.other)))+len(c.s.find(schema.KindOpen, path(dir+"/c"))) != 0 {
			t.Errorf("session %s saw another's file", c.own)
		}
		for _, e := range c.s.events {
			if e.PID == uint32(os.Getpid()) {
				t.Errorf("the recorder appears: %s", describe(e))
			}
		}
	}
}

// The decoder's offsets are those of the structs in the object.
func TestLayout(t *testing.T) {
	spec, err := bpf.LoadAssay()
	if err != nil {
		t.Fatal(err)
	}
	offsets := func(name string) (map[string]int, int) {
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			t.Fatalf("struct %s: %v", name, err)
		}
		m := map[string]int{}
		for _, f := range s.Members {
			m[f.Name] = int(f.Offset.Bytes())
		}
		return m, int(s.Size)
	}
	m, size := offsets("record")
	want := map[string]int{
		"t": offTime, "start": offStart, "cgroup": offCgroup, "id": offID, "tgid": offTgid, "tid": offTid,
		"ppid": offPpid,
		"ret":  offRet, "kind": offKind, "hook": offHook, "bits": offBits, "arg": offArg, "ino": offIno, "dev": offDev,
		"mode": offMode, "seg": offSeg, "slot": offSlot, "nr": offNr, "cpu": offCPU, "serial": offSerial,
		"stream": offStream, "place": offPlace,
	}
	if !reflect.DeepEqual(m, want) || size != recordSize {
		t.Errorf("struct record: %v, %d bytes; the decoder has %v, %d", m, size, want, recordSize)
	}
	if m, size := offsets("address"); size != addressSize || m["lport"] != 8 || m["rport"] != 10 || m["local"] != 12 ||
		m["remote"] != 28 {
		t.Errorf("struct address: %v, %d bytes", m, size)
	}
	for name, n := range map[string]uint64{
		"H_COUNT": uint64(hookCount), "H_CELLS": hookCells, "K_MOVED_V1": uint64(KindMovedV1),
		"K_KERNEL_EXEC": uint64(KindKernelExec), "K_UNMODELLED": uint64(KindUnmodelled),
		"K_EXEC_ARGS": uint64(kindExecArgs), "K_REPEAT": uint64(kindRepeat), "K_URING_DONE": uint64(kindRequestDone),
		"K_COUNT": kindCount, "P_MMAP": progMmap, "S_COUNT": segCount,
		"S_NAME": segName, "H_SOCKET": uint64(HookSocket), "H_FLUSH": uint64(HookFlush),
		"B_WALKED": bitWalked, "B_SLOT": bitSlot, "B_ADDRESS_FIRST": bitAddressFirst, "B_NO_BASE": bitNoBase,
	} {
		if got := enumerator(t, name); got != n {
			t.Errorf("%s is %d in record.h, %d here", name, got, n)
		}
	}
}

// enumerator finds the value of a name in bpf/record.h. Anonymous enums leave
// no trace in the object's BTF.
func enumerator(t *testing.T, name string) uint64 {
	text, err := os.ReadFile("../bpf/record.h")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the sources are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	comments := regexp.MustCompile(`(?s)/\*.*?\*/`)
	for _, m := range regexp.MustCompile(`(?s)enum \w* ?\{(.*?)\}`).FindAllSubmatch(comments.ReplaceAll(text, nil),
		-1) {
		next := uint64(0)
		for _, item := range strings.Split(string(m[1]), ",") {
			key, value, explicit := strings.Cut(strings.TrimSpace(item), "=")
			if explicit {
				base, shift, shifted := strings.Cut(strings.TrimSpace(value), "<<")
				next, _ = strconv.ParseUint(strings.TrimSpace(base), 10, 64)
				if shifted {
					n, _ := strconv.Atoi(strings.TrimSpace(shift))
					next <<= n
				}
			}
			if strings.TrimSpace(key) == name {
				return next
			}
			next++
		}
	}
	t.Fatalf("no enumerator %s", name)
	return 0
}

// Without the capabilities for it, Open says what is missing.
func TestUnavailable(t *testing.T) {
	_, err := Open(t.Context(), Config{CgroupPath: t.TempDir()})
	var u *Unavailable
	if !errors.Is(err, ErrNotSupported) || !errors.As(err, &u) || u.Reasons[0].Code != CodeNoCgroup2 ||
		u.Reasons[0].Remedy == "" {
		t.Errorf("not a cgroup2 directory: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user may load no eBPF programs, which is then the reason for each error")
	}
	for _, c := range []struct {
		err  error
		code string
	}{{unix.ENOSYS, CodeBlocked}, {unix.EPERM, CodeBlocked}, {ebpf.ErrNotSupported, CodeLoadFailed},
		{&ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"1: (85) call bpf_probe_read_kernel#113",
			"the combined stack size of 6 calls is 576. Too large"}}, CodeLoadFailed},
		{&ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"unknown func bpf_probe_read_kernel#113"}},
			CodeLockdown},
	} {
		err := classify(c.err)
		if !errors.As(err, &u) || u.Reasons[0].Code != c.code || !errors.Is(err, c.err) {
			t.Errorf("%v becomes %v", c.err, err)
		}
	}
}

func init() {
	// unprivileged CGROUP: drops to nobody and opens.
	children["unprivileged"] = func(args []string) {
		check("setgroups", unix.Setgroups(nil))
		check("setgid", unix.Setresgid(65534, 65534, 65534))
		check("setuid", unix.Setresuid(65534, 65534, 65534))
		_, err := Open(context.Background(), Config{CgroupPath: args[0]})
		var u *Unavailable
		if !errors.As(err, &u) || u.Reasons[0].Code != CodeNotPermitted {
			check("open", errors.Join(errors.New("want not_permitted"), err))
		}
	}
}

func TestUnprivileged(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/proc/self/exe", s.path)
	c.SysProcAttr = nil
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=unprivileged")
	s.run(c)
	s.end()
}

// A link that somebody took off is missed at the end, and so is its hook.
func TestDetachedLink(t *testing.T) {
	s := observe(t, Config{})
	if err := s.o.loaded.own["connect4"].Detach(); err != nil {
		t.Fatal(err)
	}
	s.run(s.command("/bin/true"))
	s.end()
	if !slices.ContainsFunc(s.report.Reasons, func(r Reason) bool {
		return r.Code == CodeHookLost
	}) || s.report.Hooks[HookConnect4].Attached {
		t.Errorf("%+v, %+v", s.report.Reasons, s.report.Hooks[HookConnect4])
	}
	if !s.report.Hooks[HookConnect6].Attached {
		t.Error("the one beside it is missed as well")
	}
}
