//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// leftover is what the register of an argument holds that the call does not have: it looks like a process.
const leftover = 0x7bd9d5e8

func init() {
	children["pseudo files"] = func([]string) {
		for _, name := range []string{"/sys/class/mem", "/dev/zero", "/proc/sys/mem", "/proc/self/mem", "mem"} {
			raw("openat", atFDCWD, cstr(name), unix.O_RDONLY, 0, 0, leftover)
		}
		raw("openat", atFDCWD, cstr("/proc/self/oom_score_adj"), unix.O_WRONLY, 0, 0, leftover)
		raw("openat", atFDCWD, cstr("/dev/mem"), unix.O_RDONLY, 0, 0, leftover)
		fd := raw("openat", atFDCWD, cstr("bpf_map"), unix.O_RDWR, 0, 0, leftover)
		raw("write", fd, 0, ^uintptr(0), 0, 0, leftover) // fails
		raw("write", fd, cstr("four"), 4, 0, 0, leftover)
		raw("mmap", 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, fd, 0)
	}
}

// A pseudo file is known by its file system and its place there, and a record has no more of a call's registers than
// the call's arguments.
func TestPseudoFilesAreKnownByPlace(t *testing.T) {
	s, dir, err := observed(t, "pseudo files", func(s *session, c *exec.Cmd) {
		for _, name := range []string{"mem", "bpf_map"} {
			if err := os.WriteFile(filepath.Join(c.Dir, name), make([]byte, 4096), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	self := s.find(schema.KindExec, nil)[0].PID
	for _, e := range s.find(schema.KindOpen, nil) {
		want := uint32(0)
		if e.Place == "/proc/self/mem" || e.Place == filepath.Join("/proc", strconv.Itoa(int(self)), "mem") ||
			filepath.Base(e.Place) == "oom_score_adj" {
			want = self
		}
		if e.PlaceProcess != want {
			t.Errorf("open of %s (place %q) is about process %d, want %d", e.Value, e.Place, e.PlaceProcess, want)
		}
	}
	if got := s.find(schema.KindOpen, func(e *Event) bool { return e.PlaceProcess == self }); len(got) != 2 {
		t.Errorf("%d opens are about the process itself, want 2", len(got))
	}
	for _, kind := range []schema.KernelKind{schema.KindWrite, schema.KindMmapShared} {
		found := s.find(kind, path(filepath.Join(dir, "bpf_map")))
		if len(found) == 0 {
			t.Errorf("no event of kind %d", kind)
		}
		for _, e := range found {
			if want := uint64(4); kind == schema.KindWrite && e.Errno == 0 && e.BytesOut != want ||
				e.Errno != 0 && e.BytesOut != 0 || e.BPF != (BPFObject{}) {
				t.Errorf("%d: errno %d, %d bytes, BPF object %+v", kind, e.Errno, e.BytesOut, e.BPF)
			}
		}
	}
	if len(s.report.Reasons) != 0 {
		t.Errorf("%+v", s.report.Reasons)
	}
}
