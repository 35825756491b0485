//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["network"] = func(args []string) {
		// A listener of its own, a connection to it, and its acceptance.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check("listen", err)
		os.WriteFile("tcp", []byte(l.Addr().String()), 0o600)
		go func() {
			c, err := l.Accept()
			check("accept", err)
			c.Write([]byte("pong"))
			c.Close()
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		check("dial", err)
		c.Write(hello)
		c.Read(make([]byte, 4))
		c.Close()
		l.Close()
		// A socket that does not listen, and keeps its port from everybody who would.
		deaf, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		check("bind", unix.Bind(deaf, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		at, err := unix.Getsockname(deaf)
		check("getsockname", err)
		os.WriteFile("deaf", strconv.AppendInt(nil, int64(at.(*unix.SockaddrInet4).Port), 10), 0o600)
		fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		unix.Connect(fd, at)
		unix.Close(fd)
		unix.Close(deaf)
		// Datagrams: unconnected, connected, several in one call. Repeats are of one thread.
		runtime.LockOSThread()
		fd, _ = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		for range 3 {
			unix.Sendto(fd, []byte("abc"), 0, &unix.SockaddrInet4{Port: 40001, Addr: [4]byte{127, 0, 0, 1}})
		}
		unix.SendmsgN(fd, []byte("abcd"), nil, &unix.SockaddrInet4{Port: 40002, Addr: [4]byte{127, 0, 0, 1}}, 0)
		unix.Connect(fd, &unix.SockaddrInet4{Port: 40003, Addr: [4]byte{127, 0, 0, 1}})
		unix.Send(fd, []byte("x"), 0)
		unix.Close(fd)
		fd, _ = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		unix.Connect(fd, &unix.SockaddrInet4{Port: 40004, Addr: [4]byte{127, 0, 0, 1}})
		raw("connect", uintptr(fd), uintptr(unsafe.Pointer(&[16]byte{})), 16) // AF_UNSPEC: from everybody
		unix.Close(fd)
		fd, _ = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
		unix.Sendto(fd, []byte("abc"), 0, &unix.SockaddrInet6{Port: 40006, Addr: [16]byte{15: 1}})
		unix.Connect(fd, &unix.SockaddrInet6{Port: 40007, Addr: [16]byte{15: 1}})
		unix.Close(fd)
		fd, _ = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 9}})
		unix.Close(fd)
		// An address that is taken, one that is nobody's here, and one of the
		// wrong length, which the kernel does not look at.
		taken, err := net.ListenPacket("udp", "127.0.0.1:0")
		check("listen", err)
		port := taken.LocalAddr().(*net.UDPAddr).Port
		os.WriteFile("taken", strconv.AppendInt(nil, int64(port), 10), 0o600)
		fd, _ = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		own := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: 0x439c, /* 40003, in network order */
			Addr: [4]byte{127, 0, 0, 1}}
		raw("bind", uintptr(fd), uintptr(unsafe.Pointer(&own)), 8)
		unix.Close(fd)
		taken.Close()
		fd, _ = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
		unix.Bind(fd, &unix.SockaddrInet6{Port: 40011, Addr: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}})
		unix.Close(fd)
		// DNS to a port where nobody listens.
		fd, _ = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		unix.Sendto(fd, query, 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}})
		unix.Close(fd)
		// Unix sockets: by path, abstract, missing.
		u, err := net.Listen("unix", "sock")
		check("unix listen", err)
		uc, err := net.Dial("unix", "sock")
		check("unix dial", err)
		uc.Close()
		u.Close()
		a, err := net.Listen("unix", "@assay-test-"+filepath.Base(args[0]))
		check("abstract", err)
		ac, err := net.Dial("unix", "@assay-test-"+filepath.Base(args[0]))
		check("abstract dial", err)
		ac.Close()
		a.Close()
		gram, err := net.ListenPacket("unixgram", "gram")
		check("unix datagrams", err)
		fd, _ = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		check("unix connect", unix.Connect(fd, &unix.SockaddrUnix{Name: "gram"}))
		unix.Send(fd, []byte("abc"), 0)
		other, err := net.ListenPacket("unixgram", "other")
		check("unix datagrams", err)
		to := unix.RawSockaddrUnix{Family: unix.AF_UNIX}
		copy(to.Path[:], []int8{'o', 't', 'h', 'e', 'r'})
		message := []struct { // struct mmsghdr
			unix.Msghdr
			sent uint32
		}{{Msghdr: unix.Msghdr{Name: (*byte)(unsafe.Pointer(&to)), Namelen: 8}}}
		raw("sendmmsg", uintptr(fd), uintptr(unsafe.Pointer(&message[0])), 1, 0)
		other.Close()
		unix.Close(fd)
		gram.Close()
		net.Dial("unix", "missing")
		net.Dial("unix", "/missing/from/root")
	}
}

// hello is the start of a TLS ClientHello record.
var hello = append([]byte{0x16, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3}, bytes.Repeat([]byte{7}, 94)...)

// query asks for the address of a.test.
var query = []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01")

func TestNetwork(t *testing.T) {
	s := observe(t, Config{})
	dir := t.TempDir()
	c := s.child("network", dir)
	c.Dir = dir
	s.run(c)
	s.end()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tcp := netip.MustParseAddrPort(read("tcp"))
	deaf := netip.MustParseAddrPort("127.0.0.1:" + read("deaf"))
	taken := netip.MustParseAddrPort("127.0.0.1:" + read("taken"))
	local := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	six := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv6Loopback(), port) }
	pid := s.find(schema.KindExec, nil)[0].PID

	// What no object names is the kernel's copy where its call is one of those learned, and read from memory elsewhere.
	named := func(e *Event) bool { return !e.KernelObject() }
	for _, w := range []struct {
		what string
		kind schema.KernelKind
		ok   func(*Event) bool
	}{
		{"bind", schema.KindBind, func(e *Event) bool { return e.Own == tcp && e.Errno == 0 }},
		{"bind of an address in use", schema.KindBind, func(e *Event) bool {
			return e.Own == taken && e.Errno == int32(unix.EADDRINUSE) && !e.FromUser
		}},
		{"bind v6 of an address elsewhere", schema.KindBind, func(e *Event) bool {
			return e.Own == netip.MustParseAddrPort("[2001:db8::1]:40011") && e.Errno == int32(unix.EADDRNOTAVAIL) &&
				!e.FromUser
		}},
		{"bind that the kernel did not look at", schema.KindBind, func(e *Event) bool {
			return e.Own.Port() == 40003 && e.Errno == int32(unix.EINVAL) && e.FromUser
		}},
		{"listen", schema.KindListen, func(e *Event) bool { return e.Own == tcp }},
		{"connect", schema.KindConnect, func(e *Event) bool {
			return e.Peer == tcp && e.Protocol == "tcp" && (e.Errno == 0 || e.Errno == int32(unix.EINPROGRESS))
		}},
		{"refused connect", schema.KindConnect, func(e *Event) bool {
			return e.Peer == deaf && e.Errno == int32(syscall.ECONNREFUSED)
		}},
		{"the connection's result", schema.KindConnectResult, func(e *Event) bool {
			return e.Peer == tcp && e.Result == 0 && e.Own.Port() != 0 && e.PID == pid
		}},
		{"the refused one's", schema.KindConnectResult, func(e *Event) bool {
			return e.Peer == deaf && e.Errno == int32(syscall.ECONNREFUSED)
		}},
		{"accept", schema.KindAccept, func(e *Event) bool {
			return e.Own == tcp && e.Peer.Addr() == tcp.Addr() && e.Result >= 0
		}},
		{"sendto", schema.KindSendto, func(e *Event) bool {
			return e.Peer == local(40001) && !e.Repeat && e.BytesOut == 3 && e.Result == 3
		}},
		{"sendto again", schema.KindSendto, func(e *Event) bool {
			return e.Peer == local(40001) && e.Repeat && e.Count == 2 && e.BytesOut == 6
		}},
		{"sendmsg", schema.KindSendto, func(e *Event) bool { return e.Peer == local(40002) && e.BytesOut == 4 }},
		{"connected datagram", schema.KindConnect, func(e *Event) bool {
			return e.Peer == local(40003) && e.SockType == unix.SOCK_DGRAM
		}},
		{"send on it", schema.KindSendto, func(e *Event) bool { return e.Peer == local(40003) && e.Result == 1 }},
		{"a connection dissolved", schema.KindConnect, func(e *Event) bool {
			return !e.Peer.IsValid() && e.Result == 0 && e.Protocol == "udp"
		}},
		{"a connection without ports", schema.KindConnect, func(e *Event) bool {
			return e.Peer == netip.MustParseAddrPort("127.0.0.9:0") && e.Result == 0
		}},
		{"sendto v6", schema.KindSendto, func(e *Event) bool { return e.Peer == six(40006) }},
		{"connect v6", schema.KindConnect, func(e *Event) bool { return e.Peer == six(40007) }},
		{"DNS query", schema.KindDNS, func(e *Event) bool {
			return bytes.Equal(e.Payload, query) && e.Peer == local(53) && !e.Ingress && e.PID == pid
		}},
		{"ClientHello", schema.KindTLS, func(e *Event) bool {
			return bytes.Equal(e.Payload, hello) && e.Peer == tcp && e.PID == pid
		}},
		{"traffic", schema.KindFlow, func(e *Event) bool {
			return e.Peer == tcp && e.BytesOut == uint64(len(hello)) && e.BytesIn == 4
		}},
		{"unix bind", schema.KindBind, func(e *Event) bool {
			return e.Value == "unix:"+filepath.Join(dir, "sock") && e.KernelObject() && e.Protocol == "unix"
		}},
		{"unix connect", schema.KindConnect, func(e *Event) bool {
			return e.Value == "unix:"+filepath.Join(dir, "sock") && e.KernelObject() && e.Errno == 0
		}},
		{"unix datagram on a connected socket", schema.KindSendto, func(e *Event) bool {
			return e.Value == "unix:"+filepath.Join(dir, "gram") && e.KernelObject() && e.BytesOut == 3
		}},
		{"unix datagram by sendmmsg to another than it is connected to", schema.KindSendto, func(e *Event) bool {
			return e.Value == "unix:"+filepath.Join(dir, "other") && named(e) && e.Syscall == "sendmmsg" &&
				e.Result == 1
		}},
		{"abstract connect", schema.KindConnect, func(e *Event) bool {
			return strings.HasPrefix(e.Value, "unix:@assay-test-")
		}},
		{"missing unix socket", schema.KindConnect, func(e *Event) bool {
			return e.Value == "unix:"+filepath.Join(dir, "missing") && e.Errno == int32(syscall.ENOENT) && named(e)
		}},
		{"missing unix socket by an absolute path", schema.KindConnect, func(e *Event) bool {
			return e.Value == "unix:/missing/from/root" && e.Errno == int32(syscall.ENOENT) && named(e)
		}},
	} {
		if len(s.find(w.kind, w.ok)) == 0 {
			t.Errorf("missing: %s", w.what)
		}
	}
	if n := len(s.find(schema.KindConnect, func(e *Event) bool {
		return e.Peer.IsValid() && e.Peer.Port() == 0 && e.SockType != unix.SOCK_RAW
	})); n > 0 {
		t.Errorf("%d connects to nobody", n)
	}
	if t.Failed() {
		t.Log(s.dump())
	}
}
