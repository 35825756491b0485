"""Names that are hard to write down, and descriptors that lost theirs."""
import os
import socket

for name in (b'new\nline', b'quo"te', b"back\\slash", b"\xff\xfe<>", b"tab\t", "日本".encode(), b" lead", b"\x01\x1b[31m", b"n" * 255, b"->", b"a, b"):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(fd, 3)
    os.fchmod(fd, 0o640)
    os.close(fd)
    os.rename(name, name[:-1] + b"z")
    os.link(name[:-1] + b"z", b"l")
    os.symlink(name, b"s")
    for call in (lambda: os.open(name, os.O_RDONLY), lambda: os.mkdir(b"s"), lambda: os.open(name + b"/x", os.O_RDONLY)):
        try:
            call()
        except OSError:
            pass
    os.unlink(b"l")
    os.unlink(b"s")
    os.mkdir(b"d" + name[:200])
    os.chdir(b"d" + name[:200])
    open(b"in", "wb").close()
    os.chdir(b"..")
u = socket.socket(socket.AF_UNIX)
u.bind(b'sock\n"et')
u.listen()
c = socket.socket(socket.AF_UNIX)
c.connect(b'sock\n"et')
a = socket.socket(socket.AF_UNIX)
a.bind(b"\0truth\n%d" % os.stat("..").st_ino)
a.listen()
b = socket.socket(socket.AF_UNIX)
b.connect(b"\0truth\n%d" % os.stat("..").st_ino)
for path in (b"missing", b"n" * 100):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except OSError:
        pass
# Files without a name.
f = os.open("gone", os.O_CREAT | os.O_RDWR)
os.unlink("gone")
os.open("/proc/self/fd/%d" % f, os.O_RDONLY)
os.ftruncate(f, 4)
t = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.fchmod(t, 0o644)
m = os.memfd_create("anonymous")
os.ftruncate(m, 10)
os.open("/proc/self/fd/%d" % m, os.O_RDONLY)
os.open("/dev/null", os.O_WRONLY)
# Attributes and owners, by name and by descriptor.
open("l2", "w").close()
os.setxattr("l2", b"user.k\xff", b"v")
os.removexattr("l2", b"user.k\xff")
q = os.open("l2", os.O_RDWR)
os.setxattr(q, "user.f", b"v")
os.removexattr(q, "user.f")
os.fchown(q, 5, -1)
os.chown("l2", -1, 6)
os.lchown("l2", 0, 0)
os.mknod("l3", 0o600)
os.mknod("l4", 0o020600, os.makedev(1, 3))
try:
    os.setxattr("no/file", "user.x", b"v")
except OSError:
    pass
# Directories as descriptors.
d = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
os.open("bin", os.O_RDONLY, dir_fd=d)
os.open("../etc/passwd", os.O_RDONLY, dir_fd=d)
os.mkdir("left")
w = os.open("left", os.O_RDONLY)
os.mkdir("below", dir_fd=w)
os.rename("below", "above", src_dir_fd=w, dst_dir_fd=w)
os.symlink("x", "y", dir_fd=w)
os.rmdir("above", dir_fd=w)
os.fchdir(w)
os.mkdir("by-fchdir")
os.rename("by-fchdir", "../renamed")
try:
    os.rename("/nowhere/at/all", "../../../../../../../../over/the/top")
except OSError:
    pass
