# What reaches beyond a run, one case by its name.
import ctypes, fcntl, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)


def recorder():
    """The recorder's process: the last that executes assay-run on the way up."""
    pid, found = os.getppid(), 0
    while pid:
        with open("/proc/%d/stat" % pid) as f:
            name, rest = f.read().rsplit(")", 1)
        if name.endswith("(assay-run"):
            found = pid
        pid = int(rest.split()[1])
    return found


outside = 0 if len(sys.argv) < 3 else recorder() if sys.argv[2] == "recorder" else int(sys.argv[2])


def helper():
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))


def memory():
    os.close(os.open("/proc/%d/mem" % outside, os.O_RDWR))


def memory_read():
    os.close(os.open("/proc/%d/mem" % outside, os.O_RDONLY))


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


def false_proc():
    """Changes a file by a name that would be a descriptor's if /proc were a proc."""
    os.makedirs("root/proc/self/fd")
    open("held", "w").close()
    open("root/changed", "w").close()
    fd = os.open("held", os.O_RDONLY)
    os.symlink("/changed", "root/proc/self/fd/%d" % fd)
    os.chmod("/proc/self/fd/%d" % fd, 0o640)
    os.chroot("root")
    os.chmod("/proc/self/fd/%d" % fd, 0o600)


def changing():
    """Makes a directory in a file system of its own, which can lead every name elsewhere."""
    os.mkdir("m")
    assert libc.unshare(0x20000) == 0 and libc.mount(None, b"/", None, 0x44000, None) == 0  # CLONE_NEWNS, private
    fd = os.open("/dev/fuse", os.O_RDWR)
    assert libc.mount(b"x", b"m", b"fuse", 0, b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fd) == 0
    node = lambda n: struct.pack("<6Q10I", n, 0, 1, 0, 0, 0, 0, 0, 0, 0o40755, 1, 0, 0, 0, 4096, 0)
    entry = lambda n: struct.pack("<4Q2I", n, 0, 0, 0, 0, 0) + node(n)
    pid = os.fork()
    while pid == 0:
        request = os.read(fd, 1 << 20)
        _, op, unique, asked = struct.unpack("<2I2Q", request[:24])
        error, body = 0, b""
        if op == 26:  # INIT
            body = struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)
        elif op == 1 and request[40:] == b"new\0":  # LOOKUP
            error = -2
        elif op in (1, 9):  # MKDIR
            body = entry(asked + 1)
        elif op == 3:  # GETATTR
            body = struct.pack("<Q2I", 0, 0, 0) + node(asked)
        elif op in (2, 42):  # FORGET has no answer
            continue
        else:
            error = -38
        os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    os.close(fd)
    os.mkdir("m/d/new")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


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


def unknown_file_system():
    """One that the recorder does not know as local, and that cannot be mounted."""
    assert libc.mount(b"none", b".", b"sockfs", 0, None) == -1
    assert ctypes.get_errno() not in (1, 19), os.strerror(ctypes.get_errno())


def local_file_system():
    os.mkdir("m")
    assert libc.mount(b"none", b"m", b"tmpfs", 0, None) == 0
    libc.umount2(b"m", 2)


def handed_question():
    """A question to the DNS server that the run's standard input is a socket to."""
    os.write(0, b"\0\1\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1")


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


def guard():
    """Kills what would end the run if the recorder were killed."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                parent = f.read().rsplit(")", 1)[1].split()[1]
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                guards = b"\0__guard\0" in f.read()
        except (OSError, IndexError):
            continue
        if guards and int(parent) == outside:
            os.kill(int(pid), signal.SIGKILL)


def limited():
    """Another process gets a signal when it has used a second of CPU time."""
    resource.prlimit(outside, resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))


def priority():
    os.setpriority(os.PRIO_PROCESS, outside, max(5, os.getpriority(os.PRIO_PROCESS, outside)))


def scheduled():
    os.sched_setaffinity(outside, {0})
    os.sched_setscheduler(outside, os.SCHED_BATCH, os.sched_param(0))
    assert libc.syscall(251, 1, outside, 3 << 13) == 0  # ioprio_set, IOPRIO_CLASS_IDLE


def overrun():
    """Another process uses more CPU time than it may from now on, and ends."""
    resource.prlimit(outside, resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))
    while stat_of(outside) not in ("Z", ""):
        pass


def stat_of(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def killed_by_cgroup():
    """The kernel kills what is in the cgroup of another process."""
    with open("/proc/self/mountinfo") as f:
        at = [line.split()[4] for line in f if " - cgroup2 " in line][0]
    with open("/proc/%d/cgroup" % outside) as f:
        at += [line.strip()[3:] for line in f if line.startswith("0::")][0]
    fd = os.open(at + "/cgroup.kill", os.O_WRONLY)
    os.write(fd, b"1")


def moved_in():
    """A process outside gets into the cgroup of the run."""
    with open("/proc/self/mountinfo") as f:
        at = [line.split()[4] for line in f if " - cgroup2 " in line][0]
    with open("/proc/self/cgroup") as f:
        at += [line.strip()[3:] for line in f if line.startswith("0::")][0]
    fd = os.open(at + "/cgroup.procs", os.O_WRONLY)
    os.write(fd, b"%d" % outside)
    os.kill(outside, signal.SIGKILL)


def resized():
    """The terminal of another process gets another size."""
    while True:
        with open("/proc/%d/status" % outside) as f:
            caught = [int(line.split()[1], 16) for line in f if line.startswith("SigCgt")][0]
        if caught >> signal.SIGWINCH - 1 & 1:
            break
    fd = os.open("/proc/%d/fd/0" % outside, os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(fd, 0x5414, b"\x0a\0\x0a\0\0\0\0\0")  # TIOCSWINSZ


def oom_score():
    name = "/proc/%d/oom_score_adj" % outside
    with open(name) as f:
        old = f.read()
    with open(name, "w") as f:
        f.write(old)


def everyone():
    """Each process of a user, who has this one alone."""
    os.setuid(61234)
    os.setpriority(os.PRIO_USER, 0, 5)


def taken_from():
    assert libc.syscall(438, libc.syscall(434, outside, 0), 1, 0) >= 0  # pidfd_getfd, pidfd_open


def waited_for_timers():
    """A process outside gets signals of its own timer while this one runs."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass


def owned():
    """The kernel signals another process of what this one writes."""
    r, w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, outside)
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
    fcntl.fcntl(r, 10, int(signal.SIGCONT))  # F_SETSIG
    os.write(w, b"x")


def unreachable():
    print("nobody" if outside == 0 else outside)


def own_only():
    """What a program does to itself is no act on another."""
    resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
    resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))
    try:
        resource.prlimit(outside, resource.RLIMIT_CORE)  # asks only
    except PermissionError:
        pass
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    fcntl.fcntl(0, fcntl.F_GETFD)


def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()


def other_packet():
    """The same by the name that it had first."""
    socket.socket(socket.AF_INET, 10, socket.htons(3)).close()  # SOCK_PACKET


def load_program(kind):
    """A program that returns 0."""
    insns = ctypes.create_string_buffer(bytes([0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]))
    license = ctypes.create_string_buffer(b"GPL")
    attr = ctypes.create_string_buffer(128)
    struct.pack_into("IIQQ", attr, 0, kind, 2, ctypes.addressof(insns), ctypes.addressof(license))
    assert libc.syscall(321, 5, attr, 128) >= 0, os.strerror(ctypes.get_errno())


def bpf_tracing():
    load_program(17)  # BPF_PROG_TYPE_RAW_TRACEPOINT


def bpf_packets():
    load_program(3)  # BPF_PROG_TYPE_SCHED_CLS


def bpf_filter():
    load_program(1)  # BPF_PROG_TYPE_SOCKET_FILTER


def vsock():
    s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    try:
        s.connect((2, 1024))
    except OSError:
        pass


def signals():
    """Two at a time from more processes than there are places to count repeats in, each in turn."""
    pipes = []
    for _ in range(100):
        r, w = os.pipe()
        done, end = os.pipe()
        if os.fork() == 0:
            while os.read(r, 1) == b"x":
                os.kill(outside, signal.SIGCONT)
                os.kill(outside, signal.SIGCONT)
                os.write(end, b"x")
            os._exit(0)
        pipes.append((w, done))
    for _ in range(3):
        for w, done in pipes:
            os.write(w, b"x")
            os.read(done, 1)
    for w, _ in pipes:
        os.write(w, b"e")
    for _ in pipes:
        os.wait()


def joined():
    """How many connections of MPTCP were joined by another one."""
    names, counts = [l.split() for l in open("/proc/net/netstat") if l.startswith("MPTcpExt:")]
    return int(counts[names.index("MPJoinAckRx")])


def announcing_server():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    s.bind(("", 7000))
    s.listen()
    c = s.accept()[0]
    try:
        while c.recv(1):
            c.send(b"y")
    except ConnectionError:
        pass


def announced():
    """The server announces another address of its own, to which the kernel connects."""
    while True:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)  # IPPROTO_MPTCP
        try:
            s.connect(("127.0.0.1", 7000))
            break
        except ConnectionRefusedError:
            s.close()
            time.sleep(0.01)
    while not joined():
        s.send(b"x")
        s.recv(1)
        time.sleep(0.01)


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
    if os.fork() == 0:  # in a session without a terminal
        os.setsid()
        libc.syscall(153)  # vhangup
        os._exit(0)
    os.wait()
    for request in 0x5412, 0x541C:  # TIOCSTI, TIOCLINUX
        try:
            fcntl.ioctl(os.open("/dev/null", os.O_RDWR), request, b"x")
        except OSError:
            pass


def passed():
    a, b = socket.socketpair()
    threading.Thread(target=lambda: None).start()
    for fd in 0, socket.socket().fileno():
        socket.send_fds(a, [b"x"], [fd])
        socket.recv_fds(b, 1, 1)


def received():
    s = socket.socket(fileno=0)
    for fd in socket.recv_fds(s, 1, 1)[1]:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, b"x")
        os.close(fd)


def received_behind():
    """Behind another control message."""
    s = socket.socket(fileno=0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    for level, kind, data in s.recvmsg(1, 1000)[1]:
        if kind == socket.SCM_RIGHTS:
            os.write(int.from_bytes(data[:4], sys.byteorder), b"x")


def received_by_thread():
    """By a process whose threads could put another file in its place."""
    t = threading.Event()
    other = threading.Thread(target=t.wait)
    other.start()
    received()
    t.set()
    other.join()


def given_away():
    """Another process connects a socket of the run."""
    s, own = socket.socket(fileno=0), socket.socket()
    socket.send_fds(s, [b"x"], [own.fileno()])
    s.recv(1)
    own.send(b"x")


def listener():
    """A seccomp program with a listener; negative: there is one already."""
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow)))
    return libc.syscall(317, 1, 8, program)  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER


def listener_given_away():
    """Another process can put descriptors into this one from now on."""
    fd = listener()
    assert fd >= 0
    socket.send_fds(socket.socket(fileno=0), [b"x"], [fd])


def listener_refused():
    """The sandbox has the only one."""
    assert listener() < 0


def visit():
    """A connection to the server outside."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[3])
    return s


def with_thread(act):
    """Acts while another thread could change the memory."""
    t = threading.Event()
    other = threading.Thread(target=t.wait)
    other.start()
    try:
        act()
    finally:
        t.set()
        other.join()


def served():
    """Gets a file from a server outside."""
    os.read(socket.recv_fds(visit(), 1, 1)[1][0], 10)


def served_bytes():
    visit().recvmsg(1, 100)


def served_bytes_by_thread():
    with_thread(served_bytes)


def datagrams():
    """A named socket that has got a datagram from outside."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("datagrams")
    c = visit()
    c.send(os.path.abspath("datagrams").encode())
    c.recv(1)
    return s


def served_by_datagram():
    os.read(socket.recv_fds(datagrams(), 1, 1)[1][0], 10)


def served_before_connecting():
    """What waits in a datagram socket that is connected to one of the run's own then."""
    s = datagrams()
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own.bind("own")
    s.connect("own")
    os.read(socket.recv_fds(s, 1, 1)[1][0], 10)


def listens_for_others():
    """Listens on a socket of a process outside, which accepts."""
    socket.socket(fileno=os.dup(0)).listen(1)
    served()


def own_server():
    """Gets a file from a server of the run."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("own")
    r, w = os.pipe()
    if os.fork() == 0:
        listener.listen(1)
        os.write(w, b"x")
        c = listener.accept()[0]
        socket.send_fds(c, [b"x"], [os.open("/etc/hostname", os.O_RDONLY)])
        c.recv(1)  # until the other has it
        os._exit(0)
    os.read(r, 1)
    s = socket.socket(socket.AF_UNIX)
    s.connect("own")
    os.read(socket.recv_fds(s, 1, 1)[1][0], 10)
    s.close()
    os.wait()


def own_bytes_by_thread():
    with_thread(unpassed)


def taken():
    pid, number = int(sys.argv[3]), int(sys.argv[4])
    fd = libc.syscall(438, libc.syscall(434, pid, 0), number, 0)  # pidfd_getfd, pidfd_open
    assert fd >= 0
    os.write(fd, b"x")


def taken_file():
    fd = libc.syscall(438, libc.syscall(434, outside, 0), 0, 0)
    assert fd >= 0
    os.close(fd)


def inherited():
    """Each by another call."""
    msg = lambda fd: socket.socket(fileno=os.dup(fd))
    calls = [
        lambda fd: os.read(fd, 1),
        lambda fd: os.readv(fd, [bytearray(1)]),
        lambda fd: msg(fd).recv(1),
        lambda fd: msg(fd).recvmsg(1),
        lambda fd: os.write(fd, b"x"),
        lambda fd: os.writev(fd, [b"x"]),
        lambda fd: msg(fd).send(b"x"),
        lambda fd: msg(fd).sendmsg([b"x"]),
        lambda fd: os.sendfile(fd, os.open("/etc/hostname", os.O_RDONLY), 0, 1),
        lambda fd: os.splice(fd, os.pipe()[1], 1),
        submitted,
        zero_copy,
    ]
    for i, call in enumerate(calls):
        call(3 + i)
        call(3 + i)


def submitted(fd):
    """By io_submit."""
    context = ctypes.c_ulong()
    assert libc.syscall(206, 1, ctypes.byref(context)) == 0
    data = ctypes.create_string_buffer(b"x")
    cb = (ctypes.c_uint64 * 8)(0, 0, 1 | fd << 32, ctypes.addressof(data), 1)
    assert libc.syscall(209, context, 1, ctypes.byref(ctypes.pointer(cb))) == 1
    libc.syscall(207, context)


def zero_copy(fd):
    """Where what comes is mapped, in place of being copied."""
    request, size = ctypes.create_string_buffer(64), ctypes.c_uint(64)
    assert libc.getsockopt(fd, socket.IPPROTO_TCP, 35, request, ctypes.byref(size)) == 0  # TCP_ZEROCOPY_RECEIVE


def read_memory():
    """The memory of a process outside, by a descriptor that was open before."""
    os.pread(0, 1, int(sys.argv[3]))


def unused():
    pass


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


def loaded():
    """A program whose loader (PT_INTERP) is a file of the run's own."""
    ld = b"/lib64/ld-linux-x86-64.so.2"
    with open(ld, "rb") as f, open("/tmp/.hidden-ld", "wb") as to:
        to.write(f.read())
    with open("/bin/true", "rb") as f, open("t", "wb") as to:
        to.write(f.read().replace(ld, b"/tmp/.hidden-ld".ljust(len(ld), b"\0"), 1))
    os.chmod("/tmp/.hidden-ld", 0o755)
    os.chmod("t", 0o755)
    try:
        assert subprocess.run(["./t"]).returncode == 0
    finally:
        os.unlink("/tmp/.hidden-ld")


def multicast():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, bytes([239, 1, 2, 3, 127, 0, 0, 1]))


def routed():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x83\x07\x04\x7f\0\0\1\0")


def release_agent():
    os.mkdir("g")
    name = b"none,name=assay%d" % os.getpid()
    assert libc.mount(b"none", b"g", b"cgroup", 0, name) == 0
    assert libc.mount(None, b"g", None, 32, name + b",release_agent=/bin/true") == 0  # MS_REMOUNT
    libc.umount2(b"g", 2)


def control():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendmsg([b"x"], [(socket.IPPROTO_IP, 1, bytes(4))], 0, ("127.0.0.1", 9))  # IP_TOS
    route = (socket.IPPROTO_IP, 7, b"\x83\x07\x04\x7f\0\0\1\0")  # IP_RETOPTS
    s.sendmsg([b"x"], [route], 0, ("127.0.0.1", 9))


def audited():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)  # NETLINK_AUDIT
    s.send(struct.pack("=IHHII", 20, 1000, 5, 1, 0) + bytes(4))  # AUDIT_GET
    s.send(struct.pack("=IHHII", 20, 1112, 5, 2, 0) + b"op\0\0")  # AUDIT_USER_LOGIN


def accounting():
    open("a", "w").close()
    assert libc.acct(b"a") == 0
    libc.acct(None)


def attributes():
    with open("a", "w") as f:
        flags = bytearray(fcntl.ioctl(f, 0x80086601, bytes(8)))
        flags[0] |= 0x40  # FS_NODUMP_FL
        fcntl.ioctl(f, 0x40086602, bytes(flags))


def setting():
    os.close(os.open("/proc/sys/kernel/printk", os.O_WRONLY))


def network_setting():
    os.close(os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY))


def own_score():
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("500")


def log_device():
    os.mknod("k", 0o20600, os.makedev(1, 11))
    os.close(os.open("k", os.O_WRONLY))


def tracing_file():
    os.mkdir("d")
    assert libc.mount(b"none", b"d", b"tracefs", 0, None) == 0
    try:
        os.close(os.open("d/tracing_on", os.O_WRONLY))
    finally:
        libc.umount2(b"d", 2)


def own_fifo():
    os.mkfifo("f")
    os.close(os.open("f", os.O_RDWR))


def other_fifo():
    os.close(os.open("/tmp/.assay-truth-fifo", os.O_RDWR))


def exchange():
    """Memory, semaphores and messages that other processes can use."""
    shm = libc.shmget(0, 4096, 0o1600)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmdt(ctypes.c_void_p(libc.shmat(shm, None, 0)))
    libc.shmctl(shm, 0, None)
    sem = libc.semget(0, 1, 0o1600)
    libc.syscall(65, sem, struct.pack("HhH", 0, 1, 0), 1)  # semop
    libc.semctl(sem, 0, 0)
    q = libc.msgget(0, 0o1600)
    libc.msgsnd(q, struct.pack("l8s", 1, b"x"), 8, 0)
    libc.msgctl(q, 0, None)
    mq = libc.mq_open(b"/assay-truth", 0o102, 0o600, None)
    libc.mq_send(mq, b"x", 1, 0)
    libc.mq_unlink(b"/assay-truth")


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
