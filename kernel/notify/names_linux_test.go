//go:build amd64 || arm64

package notify

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// self is this process, as the observer has one.
func self(t *testing.T) *process {
	p := unopened(uint32(os.Getpid()), uint32(os.Getppid()))
	p.reads = new(reads)
	if !p.open() {
		t.Fatal("this process cannot be opened")
	}
	p.openMemory()
	t.Cleanup(p.close)
	return p
}

// A path is read from the memory of the caller, and made absolute as the kernel would.
func TestNamesAreReadFromTheCaller(t *testing.T) {
	table, err := newTable()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(table.ends)
	n, p := newNames(table), self(t)
	dir := t.TempDir()
	t.Chdir(dir)
	fd, err := unix.Open(filepath.Dir(dir), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, c := range map[string]struct {
		text        string
		fd          int32
		path, given string
		marks       schema.Marks
	}{
		"absolute":                 {text: "/etc/x", fd: unix.AT_FDCWD, path: "/etc/x"},
		"in the working directory": {text: "a/b", fd: unix.AT_FDCWD, path: dir + "/a/b"},
		"in an open directory":     {text: "a", fd: int32(fd), path: filepath.Dir(dir) + "/a"},
		"above it":                 {text: "../a", fd: unix.AT_FDCWD, path: filepath.Dir(dir) + "/a", given: "../a"},
		"up from what may be a link": {text: "a/../b", fd: unix.AT_FDCWD, path: dir + "/a/../b", given: "a/../b",
			marks: schema.MarkUnresolved},
		"in a directory that is not open": {text: "a", fd: 1 << 20, path: "a", marks: schema.MarkRelative},
	} {
		text := append([]byte(c.text), 0)
		var e kernel.Event
		path, given := n.path(&e, p, c.fd, uint64(uintptr(unsafe.Pointer(&text[0]))))
		runtime.KeepAlive(text)
		if path != c.path || given != c.given || e.Marks != c.marks || !e.UserMemory {
			t.Errorf("%s: %q, given %q, marks %s, from memory %t", name, path, given, e.Marks, e.UserMemory)
		}
	}
	var e kernel.Event
	if path, _ := n.path(&e, p, unix.AT_FDCWD, 8); path != "" || e.Marks != schema.MarkUnreadable {
		t.Errorf("a name at an address without memory is %q, marked %s", path, e.Marks)
	}
}

// What is counted adds up: each notification is emitted, coalesced or filtered.
func TestATallyAddsUp(t *testing.T) {
	q := newQueue()
	s, p := newEvents(q, new(tally)), &process{pid: 5, start: 9}
	open := func() { s.emit(s.begin(schema.KindOpen, kernel.HookOpen, p, 5)) }
	open()
	open() // a repeat
	open() // counted in the repeat
	s.quiet(kernel.HookSocket, func() {})
	fork := s.begin(schema.KindFork, kernel.HookFork, p, 6)
	fork.Thread = true
	s.emit(fork)
	var r kernel.Report
	s.tally.report(&r, true)
	got := map[kernel.HookID][3]uint64{}
	for _, h := range r.Hooks {
		if h.Fired > 0 {
			got[h.Hook] = [3]uint64{h.Emitted, h.Coalesced, h.Filtered}
		}
		if h.Fired != h.Emitted+h.Coalesced+h.Filtered || !h.Attached {
			t.Errorf("%+v", h)
		}
	}
	want := map[kernel.HookID][3]uint64{kernel.HookOpen: {1, 2, 0}, kernel.HookSocket: {0, 0, 1},
		kernel.HookFork: {1, 0, 0}, kernel.HookFlush: {1, 0, 0}}
	for h, counts := range want {
		if got[h] != counts {
			t.Errorf("hook %s: %v, want %v", hookNames[h], got[h], counts)
		}
	}
	if len(got) != len(want) || r.Received != 3 || r.Repeats != 2 || r.Threads != 1 || r.Forks != 0 ||
		len(q.take(nil)) != int(r.Received) {
		t.Errorf("%v: %+v", got, r)
	}
}
