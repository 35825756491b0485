package unixdiag

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bind binds a socket to a name, and returns the number of the socket.
func bind(t *testing.T, name string) uint32 {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	_ = raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
	if err != nil {
		t.Fatal(err)
	}
	return uint32(st.Ino)
}

func TestASocketIsFoundByItsFileAfterItWasRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	number := bind(t, path)
	if err := os.Rename(path, path+".renamed"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path + ".renamed")
	if err != nil {
		t.Fatal(err)
	}
	inode := uint32(info.Sys().(*syscall.Stat_t).Ino)
	list := Bound()
	at := slices.IndexFunc(list, func(s Socket) bool { return s.Name == path })
	if at < 0 {
		t.Fatalf("the socket is not in the list of %d", len(list))
	}
	// A kernel without diagnostics of unix sockets tells only names.
	if s := list[at]; s.Inode != 0 && (s.Inode != inode || s.Number != number || s.Device == "") {
		t.Errorf("%+v; its file has the inode %d, and the socket the number %d", s, inode, number)
	}
}

func TestAnAbstractNameIsNotThatOfAFile(t *testing.T) {
	number := bind(t, "@assay-run-unixdiag-test")
	fd, err := diagSocket("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	list, err := Ask(fd)
	if err == unix.EOPNOTSUPP {
		t.Skip("the kernel has no diagnostics of unix sockets (CONFIG_UNIX_DIAG)")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(s Socket) bool {
		return s.Name == "\x00assay-run-unixdiag-test" && s.Number == number && s.Inode == 0
	}) {
		t.Error("the abstract socket is not in the list")
	}
	if slices.ContainsFunc(Bound(), func(s Socket) bool { return s.Name == "" || s.Name[0] == 0 }) {
		t.Error("a name that is no path is in the list of those that are bound to one")
	}
}

func TestAnAnswerThatIsCutIsNotRead(t *testing.T) {
	whole := make([]byte, 48)
	whole[0], whole[4] = 48, unix.SOCK_DIAG_BY_FAMILY
	whole[32], whole[34] = 16, diagName // an attribute with a path of 12 bytes
	copy(whole[36:], "/a/path\x00")
	if list, done, err := decode(whole); err != nil || done || len(list) != 1 || list[0].Name != "/a/path" {
		t.Fatalf("%+v, %v, %v", list, done, err)
	}
	for n := unix.SizeofNlMsghdr; n < len(whole); n++ {
		if list, _, err := decode(whole[:n]); err == nil || len(list) != 0 {
			t.Errorf("%d bytes: %+v, %v", n, list, err)
		}
	}
	long := slices.Clone(whole)
	long[32] = 40 // longer than the message
	if list, _, err := decode(long); err != nil || len(list) != 1 || list[0].Name != "" {
		t.Errorf("an attribute that is too long: %+v, %v", list, err)
	}
}
