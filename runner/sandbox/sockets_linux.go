package sandbox

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/unixdiag"
	"github.com/assay-run/assay-run/schema"
)

// outsideSockets begins to look for sockets. The result lists the files of sockets that processes have bound, in all
// network namespaces that this process can look into, under every name that the command could use. known are files to
// look at in any case, with all those in what the command may write. A file whose socket is closed reaches nobody, and
// is not listed.
//
// Names are only where to look. A file counts by its inode, and because a connection to it meets a socket. Whole file
// systems are searched for a socket whose file was renamed only if the connector cannot keep the command from it:
// a datagram needs no connect(2), and with another listener there is no connector.
func (p *Profile) outsideSockets() func(known []string) []string {
	bound := make(chan []unixdiag.Socket, 1)
	go func() { bound <- unixdiag.Bound() }()
	return func(known []string) []string { return p.socketFiles(known, <-bound) }
}

func (p *Profile) socketFiles(known []string, bound []unixdiag.Socket) []string {
	found := map[string]bool{}
	names := map[uint32]int{} // how many names were found of an inode
	links := map[uint32]int{} // how many it has
	meet := func(path string, want uint32) {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSocket == 0 || found[path] {
			return
		}
		st := info.Sys().(*syscall.Stat_t)
		if ino := uint32(st.Ino); (want == 0 || ino == want) && meetsAt(path) {
			found[path] = true
			names[ino]++
			links[ino] = int(st.Nlink)
		}
	}
	for _, path := range known {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			meet(real, 0)
		}
	}
	unheard := p.listened || unasked()
	mounts := fileSystems()
	var dirs []string // of all processes
	lost := map[string]map[uint32]bool{}
	for _, s := range bound {
		if s.Name == "" || p.unseen(s, mounts) {
			continue
		}
		at := []string{s.Name}
		if !filepath.IsAbs(s.Name) {
			if dirs == nil {
				dirs = workingDirectories()
			}
			at = nil
			for _, dir := range dirs {
				at = append(at, filepath.Join(dir, s.Name))
			}
		}
		for _, path := range at {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				for _, same := range aliases(real, mounts) {
					meet(same, s.Inode)
				}
			}
		}
		search := unheard || s.Type == unix.SOCK_DGRAM
		if search && s.Inode != 0 && (names[s.Inode] == 0 || names[s.Inode] < links[s.Inode]) {
			if lost[s.Device] == nil {
				lost[s.Device] = map[uint32]bool{}
			}
			lost[s.Device][s.Inode] = true
		}
	}
	for dev, inodes := range lost { // the file was renamed or removed, or has more names
		for _, m := range mounts {
			if m.dev == dev && !p.covered(m.point) {
				p.searchSockets(m.point, mounts, func(path string) {
					if info, err := os.Lstat(path); err == nil && inodes[uint32(info.Sys().(*syscall.Stat_t).Ino)] {
						meet(path, 0)
					}
				})
			}
		}
	}
	for _, m := range mounts { // a socket's file can be a mount
		meet(m.point, 0)
	}
	var list []string
	for path := range found {
		list = append(list, path)
	}
	slices.Sort(list)
	return list
}

// unasked reports whether the kernel cannot ask about the calls of a command, or may refuse to since something asks
// about those of this process already.
func unasked() bool {
	actions, _ := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	status, _ := os.ReadFile("/proc/self/status")
	return !bytes.Contains(actions, []byte("user_notif")) || !bytes.Contains(status, []byte("\nSeccomp:\t0\n"))
}

// unseen reports whether no mount that the command sees has the socket's file.
func (p *Profile) unseen(s unixdiag.Socket, mounts []fileSystem) bool {
	if s.Device == "" {
		return filepath.IsAbs(s.Name) && p.covered(s.Name)
	}
	return !slices.ContainsFunc(mounts, func(m fileSystem) bool { return m.dev == s.Device && !p.covered(m.point) })
}

// searchSockets calls found for every socket's file of a mount.
func (p *Profile) searchSockets(dir string, mounts []fileSystem, found func(path string)) {
	points := map[string]bool{}
	for _, m := range mounts {
		points[m.point] = m.point != dir
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() && (points[path] || p.covered(path)):
			return filepath.SkipDir
		case d.Type() == fs.ModeSocket:
			found(path)
		}
		return nil
	})
}

// meetsAt is meets for the file at path.
func meetsAt(path string) bool {
	file, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(file)
	return meets(file)
}

// meets reports whether a connection to an open file meets a socket, without connecting: a datagram socket cannot
// connect to a stream or a listener, and what it connects to notices nothing. Only the kernel knows: the socket may
// belong to any network namespace.
func meets(file int) bool {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer unix.Close(s)
	return unix.Connect(s, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", file)}) != unix.ECONNREFUSED
}

// workingDirectories lists those of all processes.
func workingDirectories() []string {
	var dirs []string
	for _, pid := range unixdiag.Processes() {
		if dir, err := os.Readlink(pid + "/cwd"); err == nil {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// aliases lists the names that a file has because its file system is mounted more than once, with the given one.
func aliases(path string, mounts []fileSystem) []string {
	list := []string{path}
	var on fileSystem
	for _, m := range mounts {
		if schema.Below(path, m.point) && len(m.point) >= len(on.point) {
			on = m
		}
	}
	within := filepath.Join(on.root, strings.TrimPrefix(path, on.point))
	for _, m := range mounts {
		if m.dev == on.dev && m.point != on.point && schema.Below(within, m.root) {
			list = append(list, filepath.Join(m.point, strings.TrimPrefix(within, m.root)))
		}
	}
	return list
}
