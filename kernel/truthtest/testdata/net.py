"""Sockets of every kind. Arguments: the DNS server, the port of an HTTP server."""
import socket
import struct
import sys

dns, port = sys.argv[1], int(sys.argv[2])
lo = "127.0.0.1"


def query(name, kind=1):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split("."))
    return struct.pack(">HHHHHH", 0xbeef, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


# Datagrams: unconnected, connected, by message, over IPv6. Nobody listens.
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((lo, 0))
for _ in range(3):
    u.sendto(b"abc", ("127.0.0.2", 40001))
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.connect((lo, 40002))
c.send(b"abcd")
m = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
m.sendmsg([b"ab", b"c"], [], 0, ("::1", 40003))

# DNS over both, then a connection to what was answered.
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
d.sendto(query("alias.test"), (dns, 53))
d.recv(512)
e = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
e.connect((dns, 53))
e.send(query("missing.test", 28))
e.recv(512)
t = socket.create_connection((dns, 53))
t.send(struct.pack(">H", len(query("tcp.test"))) + query("tcp.test"))
t.recv(512)
t.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for part in (struct.pack(">H", len(query("parts.test"))), query("parts.test")):
    t.send(part)
t.recv(512)
socket.create_connection((lo, port)).close()

# Unix sockets: by name, without one, datagrams.
for name in ("sock", "\0truth-abstract"):
    s = socket.socket(socket.AF_UNIX)
    s.bind(name)
    s.listen()
    a = socket.socket(socket.AF_UNIX)
    a.connect(name)
    s.accept()[0].close()
g = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
g.bind("gram")
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"hello", "gram")
