"""fuse.py DIR CASE: a FUSE file system on DIR, with one program "f" in it, and in case root a
directory "jail". Its server stops answering one kind of request, and the case then does what
must not wait for that."""
import ctypes
import os
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
GETATTR, READ = 3, 15
at, case = sys.argv[1:]
with open("/bin/true", "rb") as program:
    content = program.read()


def attributes(node):
    mode, size = (0o100755, len(content)) if node == 2 else (0o40755, 0)
    return struct.pack("<6Q10I", node, size, size // 512 + 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(op, node, body):
    if op == 26:  # INIT
        return struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 0, 0, *[0] * 8)
    if op == 1:  # LOOKUP: the kernel must not keep what it learns
        if body == b"jail\0":
            os.write(asked[1], b"?")
            os.read(told[0], 1)
        node = 3 if body == b"jail\0" else 2
        return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(node)
    if op == GETATTR:
        return struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if op in (14, 27):  # OPEN, OPENDIR
        return struct.pack("<Q2I", 1, 0, 0)
    if op == READ:
        offset, size = struct.unpack("<8xQI", body[:20])
        return content[offset:offset + size]
    if op in (18, 25):  # RELEASE, FLUSH
        return b""
    return None


def serve(fd):
    mute = set() if case == "program" else {READ}
    while True:
        request = os.read(fd, 1 << 20)
        _, op, unique, node = struct.unpack("<2I2Q", request[:24])
        if op in (2, 42) or op in mute:  # FORGET and BATCH_FORGET have no answer
            continue
        if op == READ:
            mute.add(GETATTR)
        data = answer(op, node, request[40:])
        error = -38 if data is None else 0  # ENOSYS
        data = data or b""
        os.write(fd, struct.pack("<IiQ", 16 + len(data), error, unique) + data)


def check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


check(libc.unshare(0x20000))  # CLONE_NEWNS
check(libc.mount(None, b"/", None, 0x44000, None))  # MS_REC|MS_PRIVATE
asked, told = os.pipe(), os.pipe()
fd = os.open("/dev/fuse", os.O_RDWR)
check(libc.mount(b"test", at.encode(), b"fuse", 0, b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fd))
if os.fork() == 0:
    serve(fd)
os.close(fd)
if case == "program":
    pid = os.posix_spawn(at + "/f", ["f"], os.environ)
    assert os.waitpid(pid, 0)[1] == 0
elif case == "root":
    change = threading.Thread(target=os.chroot, args=[at + "/jail"])
    change.start()
    os.read(asked[0], 1)
    with open("/bin/true"):  # while the other thread changes the root
        pass
    os.write(told[1], b"!")
    change.join()
    os.close(os.open("/f", os.O_RDONLY))
else:
    f = os.open(at + "/f", os.O_RDONLY)
    page = libc.mmap(None, ctypes.c_size_t(4096), 1, 2, f, ctypes.c_long(0))  # PROT_READ, MAP_PRIVATE
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            libc.creat(ctypes.c_void_p(page), 0)
        call = ""
        while not call.startswith(("85 ", "56 ")):  # creat, which is openat on arm64
            time.sleep(0.01)
            with open("/proc/%d/syscall" % pid) as s:
                call = s.read()
    with open("/bin/true"):
        pass
sys.stdout.write("went on\n")
sys.stdout.flush()
os._exit(0)
