//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	children["sysinfo"] = func([]string) { check("sysinfo", unix.Sysinfo(new(unix.Sysinfo_t))) }
	// own does what is the caller's own affair, by calls that have a table of operations.
	children["own"] = func([]string) {
		r, w, err := os.Pipe()
		check("pipe", err)
		_, err = unix.FcntlInt(r.Fd(), unix.F_GETFL, 0)
		check("fcntl", err)
		_, err = unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		check("fcntl", err)
		_, err = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		check("ioctl", err)
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		check("socket", err)
		check("setsockopt", unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		check("setsockopt", unix.SetsockoptInt(s, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		_, err = unix.IoctlGetInt(s, unix.TIOCINQ)
		check("ioctl", err)
		_, _ = unix.IoctlGetTermios(int(r.Fd()), unix.TCGETS) // ENOTTY
		check("prctl", unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0))
		_, _, _ = unix.Syscall(1000, 0, 0, 0) // ENOSYS
		if got, _, _ := unix.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0); int(got) < 0 {
			check("personality", fmt.Errorf("%d", int(got)))
		}
	}
	// unmodelled does what no line tells of.
	children["unmodelled"] = func([]string) {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		check("socket", err)
		check("join", unix.SetsockoptIPMreq(s, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreq{Multiaddr: [4]byte{239, 1, 2, 3}, Interface: [4]byte{127, 0, 0, 1}}))
		check("options", unix.SetsockoptString(s, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x83\x07\x04\x7f\x00\x00\x01\x00"))
		for range 3 {
			_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0x0040000, 0, 0)
			check("personality", errnoOf(errno))
		}
		f, err := os.Create("f")
		check("create", err)
		if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
			err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|0x40 /* nodump */)
			if err == nil {
				fmt.Println("flags")
			}
		}
		// A call of a number that no kernel has, which a filter answers with another error than the kernel does.
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 500, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
			uintptr(unsafe.Pointer(&program)))
		check("seccomp", errnoOf(errno))
		if _, _, errno := unix.Syscall(500, 1, 2, 3); errno != unix.EPERM {
			check("call 500", fmt.Errorf("%w, not EPERM", errno))
		}
	}
}

func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// opened lists what the session's events opened: call and operation, the claims, and how often.
func (s *session) opened() (list []string) {
	counts := map[string]uint64{}
	for _, e := range s.events {
		if o, ok := e.Opens(); ok {
			counts[strings.TrimSpace(o.Call+" "+o.Operation)+": "+strings.Join(o.Claims, " ")] += max(e.Count, 1)
		}
	}
	for o, n := range counts {
		list = append(list, fmt.Sprintf("%s: %d", o, n))
	}
	slices.Sort(list)
	return list
}

// What is neither recorded nor the caller's own affair is reported with its operation, and nothing else is.
func TestUnmodelledCalls(t *testing.T) {
	s := observe(t, Config{})
	s.run(s.child("own"))
	s.end()
	if got := s.opened(); len(got) > 0 || s.report.Undecoded > 0 {
		t.Errorf("the caller's own affairs opened %q, %d undecoded", got, s.report.Undecoded)
	}

	s = observe(t, Config{})
	out, err := s.child("unmodelled").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.end()
	all := strings.Join(everything, " ")
	want := []string{
		"call 500: " + all + ": 1",
		"personality 262144: programs: 3",
		"setsockopt IP_ADD_MEMBERSHIP: hosts: 1", "setsockopt IP_OPTIONS: hosts: 1",
	}
	if string(out) == "flags\n" {
		want = append(want, "ioctl FS_IOC_SETFLAGS on a file: files: 1")
		slices.Sort(want)
	}
	if got := s.opened(); !slices.Equal(got, want) {
		t.Errorf("opened %q\nnot    %q\n%s", got, want, s.dump())
	}
	if s.report.Undecoded != 1 {
		t.Errorf("%d calls that the table lacks, not 1", s.report.Undecoded)
	}
}

// A call whose row is taken out of the table opens all claims, although it succeeds and the kernel knows it.
func TestACallWithoutARow(t *testing.T) {
	const inner = "KERNEL_TEST_WITHOUT_ROW"
	if os.Getenv(inner) == "" {
		if testing.Short() { // under emulation; a kernel has no part in the table
			t.Skip("loads an observer of its own")
		}
		newCgroup(t) // skips where the other would
		c := exec.Command("/proc/self/exe", "-test.run=^TestACallWithoutARow$", "-test.v")
		c.Env = append(os.Environ(), inner+"=1")
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for i := range modelGroups {
		modelGroups[i].rows = strings.Replace(modelGroups[i].rows, "sysinfo 99 116 179;", "", 1)
	}
	s := observe(t, Config{})
	s.run(s.child("sysinfo"))
	s.end()
	want := []string{fmt.Sprintf("call %d: %s: 1", unix.SYS_SYSINFO, strings.Join(everything, " "))}
	if got := s.opened(); !slices.Equal(got, want) || s.report.Undecoded != 1 {
		t.Errorf("opened %q, not %q; %d undecoded", got, want, s.report.Undecoded)
	}
}
