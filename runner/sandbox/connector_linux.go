//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
	"github.com/assay-run/assay-run/runner/sandbox/internal/unixdiag"
)

// asks is the seccomp program that asks about connect(2), and about sendto(2) with an address. sendmsg(2) has its
// address in memory, where no program can see whether there is one.
func asks() ([]shim.Instruction, error) {
	const low, high = offArg0 + 4*argSize, offArg0 + 4*argSize + 4
	return assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: auditArch, SkipTrue: 8},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CONNECT, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SENDTO, SkipTrue: 5},
		bpf.LoadAbsolute{Off: low, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 2},
		bpf.LoadAbsolute{Off: high, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
}

// connector makes a command's connections of unix sockets in its place: between a look at what the command names and
// the command's own call, the command could change both the name and what has it. A socket is reached if a process
// inside has bound it, or if the policy allows it, whatever its name is.
//
// Calls of other sockets go on in the command.
type connector struct {
	listener    int
	diagnostics int  // a socket in the command's network namespace
	own         bool // that no process outside shares
	profile     *Profile
	allowed     []string          // files of sockets outside
	denied      func(path string) // may be nil

	asking sync.Mutex // one question at a time through diagnostics
	stop   int        // an eventfd
	done   chan struct{}
}

// maxCalls limits the command's calls that are made at a time, each of which has a thread. More fail with EAGAIN.
const maxCalls = 256

// newConnector starts to answer. It owns the descriptors.
func newConnector(p *Profile, listener, diagnostics int, own bool, denied func(path string)) (*connector, error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(listener)
		unix.Close(diagnostics)
		return nil, err
	}
	c := &connector{listener: listener, diagnostics: diagnostics, own: own, profile: p, denied: denied, stop: stop,
		allowed: slices.Clone(p.shown), done: make(chan struct{})}
	for _, a := range p.AllowRead {
		if a.Rule == ruleReach {
			c.allowed = append(c.allowed, a.Path)
		}
	}
	// The caller's thread wakes up on this one's processor (Linux 6.6).
	_ = unix.IoctlSetInt(listener, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	go c.serve()
	return c, nil
}

// close returns when no call is being made any more, or after closeTimeout. Calls that come then fail with ENOSYS. c
// may be nil.
func (c *connector) close() {
	if c == nil {
		return
	}
	_, _ = unix.Write(c.stop, []byte{1, 7: 0})
	select {
	case <-c.done:
		unix.Close(c.stop)
	case <-time.After(closeTimeout):
	}
}

// notification is a struct seccomp_notif with its struct seccomp_data.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is a struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

func (c *connector) ioctl(request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.listener), request, uintptr(arg))
	return errno
}

// serve answers until the last process with the filter is gone, or close is called.
func (c *connector) serve() {
	var calls errgroup.Group
	calls.SetLimit(maxCalls)
	defer func() {
		_ = calls.Wait()
		unix.Close(c.diagnostics)
		unix.Close(c.listener)
		close(c.done)
	}()
	for {
		fds := []unix.PollFd{{Fd: int32(c.listener), Events: unix.POLLIN}, {Fd: int32(c.stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 || fds[0].Revents&unix.POLLIN == 0 && fds[0].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		n := &notification{}
		if c.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)) != 0 {
			continue // the caller died
		}
		call, errno := c.look(n)
		if call == nil {
			c.answer(n, 0, errno, errno == 0)
			continue
		}
		if errno == 0 && calls.TryGo(func() error {
			sent, errno := c.make(call)
			c.tell(call.path, errno)
			call.close()
			c.answer(n, sent, errno, false)
			return nil
		}) {
			continue
		}
		call.close()
		c.answer(n, 0, cmp.Or(errno, unix.EAGAIN), false)
	}
}

// answer gives the caller a result. With follow, the caller makes its call.
func (c *connector) answer(n *notification, val int, errno unix.Errno, follow bool) {
	r := response{id: n.id, val: int64(val), err: -int32(errno)}
	if follow {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	if errno != 0 {
		r.val = 0
	}
	c.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}

func (c *connector) valid(n *notification) bool {
	return c.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) == 0
}

// familyUnix begins a struct sockaddr_un, little endian.
var familyUnix = []byte{unix.AF_UNIX, 0}

// call is a call of a unix socket.
type call struct {
	n       *notification
	fd      int    // the socket
	root    int    // the caller's root directory; -1: the address is not a path
	address []byte // a struct sockaddr
	data    []byte // to send
	path    string // from the root
}

func (c *call) close() {
	unix.Close(c.fd)
	if c.root >= 0 {
		unix.Close(c.root)
	}
}

const (
	// The kernel refuses a longer address (move_addr_to_kernel in net/socket.c).
	maxAddress = 128
	// maxDatagram is more than a socket sends at once by default (net.core.wmem_max).
	maxDatagram = 512 << 10
)

// look takes the call's socket and copies its arguments. The call is nil if it is none of a unix socket, or if its
// arguments are wrong however they change in memory: the caller makes it.
func (c *connector) look(n *notification) (*call, unix.Errno) {
	address, size := n.args[1], uint32(n.args[2])
	if n.nr == unix.SYS_SENDTO {
		address, size = n.args[4], uint32(n.args[5])
	}
	if size > maxAddress {
		return nil, 0
	}
	fd, errno := takeSocket(int(n.pid), int(int32(n.args[0])))
	if errno != 0 {
		return nil, errno
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_UNIX {
		unix.Close(fd)
		if err != nil {
			return nil, unix.ENOTSOCK
		}
		return nil, 0
	}
	call := &call{n: n, fd: fd, root: -1, address: make([]byte, size)}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return call, unix.EACCES
	}
	defer memory.Close()
	if _, err := memory.ReadAt(call.address, int64(address)); err != nil {
		return call, unix.EFAULT
	}
	if n.nr == unix.SYS_SENDTO {
		if n.args[2] > maxDatagram {
			return call, unix.EMSGSIZE
		}
		call.data = make([]byte, n.args[2])
		if _, err := memory.ReadAt(call.data, int64(n.args[1])); err != nil {
			return call, unix.EFAULT
		}
	}
	if size > 2 && bytes.HasPrefix(call.address, familyUnix) {
		return call, c.lookUp(call)
	}
	return call, 0
}

// takeSocket returns a copy of a thread's descriptor.
func takeSocket(tid, number int) (int, unix.Errno) {
	pid, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if err == unix.EINVAL { // before Linux 6.9
		pid, err = unix.PidfdOpen(tid, 0)
	}
	if err != nil { // there, it is not the first thread
		return -1, unix.EACCES
	}
	defer unix.Close(pid)
	fd, err := unix.PidfdGetfd(pid, number, 0)
	if err != nil {
		errno, _ := err.(unix.Errno)
		if errno == unix.EPERM {
			errno = unix.EACCES
		}
		return -1, errno
	}
	return fd, 0
}

// lookUp sets where the path of an address begins.
func (c *connector) lookUp(call *call) unix.Errno {
	name := call.address[2:]
	if name[0] == 0 { // an abstract name means a socket in the network namespace
		return c.abstract(call, string(name))
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	call.path = string(name)
	at := fmt.Sprintf("/proc/%d", call.n.pid)
	if !filepath.IsAbs(call.path) {
		dir, err := os.Readlink(at + "/cwd")
		if err != nil {
			return unix.EACCES
		}
		call.path = strings.TrimSuffix(dir, "/") + "/" + call.path
	}
	for _, self := range []string{"/proc/self/", "/proc/thread-self/"} {
		if rest, is := strings.CutPrefix(call.path, self); is {
			call.path = fmt.Sprintf("/proc/%s/%s", insideOf(at), rest)
		}
	}
	root, err := unix.Open(at+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unix.EACCES
	}
	call.root = root
	if !c.valid(call.n) { // what was opened may be another process's
		return unix.EINTR
	}
	return 0
}

// abstract decides about a name that is no path.
func (c *connector) abstract(call *call, name string) unix.Errno {
	if c.own {
		return 0
	}
	sockets, err := c.sockets()
	if err != nil {
		return unix.EACCES
	}
	errno := unix.ECONNREFUSED
	for _, s := range sockets {
		if s.Name == name {
			if holds(int(call.n.pid), s.Number) {
				return 0
			}
			errno = unix.EPERM
		}
	}
	if errno == unix.EPERM && c.denied != nil {
		c.denied("@" + name[1:])
	}
	return errno
}

// sockets lists those in the command's network namespace.
func (c *connector) sockets() ([]unixdiag.Socket, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	return unixdiag.Ask(c.diagnostics)
}

// insideOf is the number that a process has in its own PID namespace.
func insideOf(proc string) string {
	b, _ := os.ReadFile(proc + "/status")
	for line := range strings.Lines(string(b)) {
		if rest, is := strings.CutPrefix(line, "NSpid:"); is {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[len(f)-1]
			}
		}
	}
	return filepath.Base(proc)
}

// make makes a call.
func (c *connector) make(call *call) (sent int, errno unix.Errno) {
	if call.path != "" {
		file := -1
		if errno := c.asCommand(func() unix.Errno {
			var err error
			file, err = unix.Openat2(call.root, call.path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
				Resolve: unix.RESOLVE_IN_ROOT})
			errno, _ := err.(unix.Errno)
			return errno
		}); errno == unix.EXDEV { // a link of /proc
			return 0, unix.ENOENT
		} else if errno != 0 {
			return 0, errno
		}
		defer unix.Close(file)
		if errno := c.decide(call, file); errno != 0 {
			return 0, errno
		}
		call.address = fmt.Appendf(slices.Clone(familyUnix), "/proc/self/fd/%d\x00", file)
	}
	errno = c.asCommand(func() (errno unix.Errno) {
		for {
			if sent, errno = call.do(); errno != unix.EINTR || !c.valid(call.n) {
				return errno
			}
		}
	})
	return sent, errno
}

// asCommand calls f with the rights of the command, if root has others.
func (c *connector) asCommand(f func() unix.Errno) unix.Errno {
	if unix.Geteuid() != 0 {
		return f()
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		errno := become(c.profile.User)
		if errno == 0 {
			errno = f()
		}
		done <- errno
	}()
	return <-done
}

// do makes the call on the copy of the socket.
func (c *call) do() (int, unix.Errno) {
	address, data := unsafe.Pointer(unsafe.SliceData(c.address)), unsafe.Pointer(unsafe.SliceData(c.data))
	if c.n.nr == unix.SYS_CONNECT {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(c.fd), uintptr(address), uintptr(len(c.address)))
		return 0, errno
	}
	sent, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(data), uintptr(len(c.data)),
		uintptr(c.n.args[3])|unix.MSG_NOSIGNAL, uintptr(address), uintptr(len(c.address)))
	return int(sent), errno
}

// decide returns EPERM for a socket that a process outside has bound, and that the policy does not allow.
func (c *connector) decide(call *call, file int) unix.Errno {
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return unix.EACCES
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0 // the kernel refuses it
	}
	for _, path := range c.allowed {
		var at unix.Stat_t
		if unix.Stat(path, &at) == nil && at.Dev == st.Dev && at.Ino == st.Ino {
			return 0
		}
	}
	inside, err := c.inside(int(call.n.pid), file, uint32(st.Ino))
	switch {
	case err != nil:
		return unix.EACCES
	case inside:
		return 0
	case !meets(file):
		return unix.ECONNREFUSED // nobody has bound it any more
	}
	return unix.EPERM
}

// tell passes on that a call failed because the command may not reach the socket. Where a socket is hidden, the command
// sees another file in its place, or none.
func (c *connector) tell(path string, errno unix.Errno) {
	if c.denied == nil || path == "" || errno == 0 {
		return
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	if _, denied := c.profile.Denies(Attempt{Op: OpConnect, Target: "unix:" + path, Errno: int(errno)}); denied {
		c.denied(path)
	}
}

// inside reports whether a process of the run has bound a file.
func (c *connector) inside(tid, file int, inode uint32) (bool, error) {
	device, err := deviceOf(tid, file)
	if err != nil {
		return false, err
	}
	sockets, err := c.sockets()
	if err != nil {
		return false, err
	}
	for _, s := range sockets {
		if s.Inode == inode && s.Device == device && (c.own || holds(tid, s.Number)) {
			return true, nil
		}
	}
	return false, nil
}

// deviceOf is the file system of a file that was opened in a process's mount namespace, as mountinfo names it.
// stat(2) names another one for files of overlayfs and btrfs.
func deviceOf(tid, file int) (string, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file))
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", tid))
	if err != nil {
		return "", err
	}
	_, id, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ = strings.Cut(strings.TrimSpace(id), "\n")
	_, mount, _ := strings.Cut("\n"+string(mounts), "\n"+id+" ")
	if f := strings.SplitN(mount, " ", 3); len(f) == 3 { // the mount's parent, the device, and others
		return f[1], nil
	}
	return "", fmt.Errorf("mount %s is not in the namespace of process %d", id, tid)
}

// holds reports whether a process in the PID namespace of another one has a socket.
func holds(tid int, number uint32) bool {
	namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", tid))
	want := "socket:[" + strconv.FormatUint(uint64(number), 10) + "]"
	for _, proc := range unixdiag.Processes() {
		if of, err := os.Readlink(proc + "/ns/pid"); err != nil || of != namespace || proc == "/proc/self" {
			continue
		}
		fds, _ := filepath.Glob(proc + "/fd/*")
		if slices.ContainsFunc(fds, func(fd string) bool { is, _ := os.Readlink(fd); return is == want }) {
			return true
		}
	}
	return false
}

// become gives this thread the rights that the command has: those of its user, and no capabilities. Functions of
// package unix would set the user and groups of all threads.
func become(u *User) unix.Errno {
	if u != nil {
		groups := make([]uint32, len(u.Groups))
		for i, g := range u.Groups {
			groups[i] = uint32(g)
		}
		uid, gid := uintptr(u.UID), uintptr(u.GID)
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)),
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid)
		}
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
		}
		return errno
	}
	var none [2]unix.CapUserData
	err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
	errno, _ := err.(unix.Errno)
	return errno
}

// closeTimeout is how long calls that are still being made may take once the command is gone: a server outside may
// never accept.
const closeTimeout = 2 * time.Second
