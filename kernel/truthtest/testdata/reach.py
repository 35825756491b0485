# What reaches beyond a run, one case by its name.
import ctypes, fcntl, os, signal, socket, stat, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
outside = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def helper():
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))


def memory():
    os.close(os.open("/proc/%d/mem" % outside, os.O_RDWR))


def second_proc():
    """A file of proc by another mount of proc."""
    os.mkdir("p")
    assert libc.mount(b"proc", b"p", b"proc", 0, None) == 0
    try:
        os.close(os.open("p/sys/kernel/core_pattern", os.O_WRONLY))
        os.close(os.open("p/%d/mem" % outside, os.O_RDWR))
    finally:
        libc.umount2(b"p", 2)


def bound_helper():
    """By a bind mount of the file alone."""
    open("f", "w").close()
    assert libc.mount(b"/proc/sys/kernel/core_pattern", b"f", None, 4096, None) == 0
    try:
        os.close(os.open("f", os.O_WRONLY))
    finally:
        libc.umount2(b"f", 2)


def other_root():
    """By a chroot over a bind mount."""
    os.makedirs("root/proc")
    assert libc.mount(b"/proc", b"root/proc", None, 4096 | 16384, None) == 0
    try:
        if os.fork() == 0:
            os.chroot("root")
            os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
            os._exit(0)
        os.wait()
    finally:
        libc.umount2(b"root/proc", 2)


def other_binfmt():
    os.mkdir("b")
    assert libc.mount(b"binfmt_misc", b"b", b"binfmt_misc", 0, None) == 0
    try:
        os.close(os.open("b/register", os.O_WRONLY))
    finally:
        libc.umount2(b"b", 2)


def other_tun():
    os.mknod("t", 0o20600, os.makedev(10, 200))
    try:
        os.close(os.open("t", os.O_RDWR))
    except OSError as e:
        print(e)


def namesake():
    """Nothing of the kernel's, in a directory of such a name."""
    os.makedirs("proc/sys/kernel")
    open("proc/sys/kernel/core_pattern", "w").close()
    open("release_agent", "w").close()


def ptrace():
    assert libc.ptrace(0x4206, outside, 0, 0) == 0  # PTRACE_SEIZE


def own_memory():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR))
    assert libc.ptrace(0x4206, pid, 0, 0) == 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def own_thread():
    t = threading.Event()
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=t.wait, daemon=True).start()
        signal.pause()
    while len(os.listdir("/proc/%d/task" % pid)) < 2:
        pass
    for tid in os.listdir("/proc/%d/task" % pid):
        assert libc.ptrace(0x4206, int(tid), 0, 0) == 0
    os.kill(pid, signal.SIGKILL)
    while os.waitpid(-1, 0x40000000)[0] != pid:  # __WALL: each thread, the process last
        pass


def stop():
    os.kill(outside, signal.SIGCONT)


def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()


def vsock():
    s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    try:
        s.connect((2, 1024))
    except OSError:
        pass


def unspec():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", 9))
    assert libc.connect(s.fileno(), (ctypes.c_char * 16)(), 16) == 0


def privileged():
    libc.sethostname(b"x" * 100, 100)  # too long
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE: no change
    libc.syscall(298, 0, 0, 0, 0, 0)  # perf_event_open
    libc.syscall(250, 0, -3, 0, 0, 0)  # keyctl(KEYCTL_GET_KEYRING_ID)
    libc.syscall(317, 99, 0, 0)  # seccomp
    libc.acct(b"/none")
    libc.swapoff(b"/none")
    libc.swapon(b"/none", 0)
    libc.setdomainname(b"x" * 100, 100)
    libc.syscall(179, 0, b"/none", 0, 0)  # quotactl
    libc.syscall(248, b"none", b"x", 0, 0, 0)  # add_key
    libc.syscall(249, b"none", b"x", 0, 0)  # request_key
    libc.inotify_add_watch(-1, b"/none", 1)
    for request in 0x5412, 0x541C:  # TIOCSTI, TIOCLINUX
        try:
            fcntl.ioctl(os.open("/dev/null", os.O_RDWR), request, b"x")
        except OSError:
            pass


def passed():
    a, b = socket.socketpair()
    socket.send_fds(a, [b"x"], [0])
    os.read(b.fileno(), 1)


def received():
    s = socket.socket(fileno=0)
    for fd in socket.recv_fds(s, 1, 1)[1]:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, b"x")
        os.close(fd)


def taken():
    fd = libc.syscall(438, libc.syscall(434, outside, 0), 0, 0)  # pidfd_getfd, pidfd_open
    assert fd >= 0
    os.close(fd)


def unpassed():
    a, b = socket.socketpair()
    a.sendmsg([b"x"])
    b.recvmsg(1, 100)


def serve():
    s = socket.create_server(("127.0.0.1", 0))
    for i in range(20):
        c = socket.create_connection(s.getsockname())
        a = s.accept()[0]
        c.sendall(b"hello")
        a.recv(5)
        a.close()
        c.close()
    print(s.getsockname()[1])


def claimed():
    open("single", "w").close()
    os.unlink("single")
    subprocess.run(["/bin/true"])  # by vfork
    open("after-vfork", "w").close()
    os.unlink("after-vfork")
    t = threading.Event()
    other = threading.Thread(target=t.wait)
    other.start()
    try:
        os.unlink("shared")
    except OSError:
        pass
    t.set()
    other.join()


globals()[sys.argv[1]]()
