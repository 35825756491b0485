package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/assay-run/assay-run/kernel/internal/slots"
	"github.com/assay-run/assay-run/schema"
)

// errMalformed is wrapped by every decoding error.
var errMalformed = errors.New("malformed record")

// maxPendingArgs bounds the execs whose arguments are under way, which is one
// per CPU in practice, so that lost final records cannot pile up.
const maxPendingArgs = 64

// decoder turns raw records into events. It owns the one Event it fills and
// every buffer behind it. Not safe for concurrent use.
type decoder struct {
	native, ia32 *sysTable
	// slots holds, for each coalescing slot, a copy of the record that took it.
	slots slots.Table[[]byte]
	// pending holds the argv of execs whose final record has not come yet, by id.
	pending  map[uint64]*pendingArgs
	requests requests

	ev         Event
	rec        record
	path       [4][]byte // buffers of Path, Path2, Exe, Cwd
	place      []byte
	argv, keys [][]byte
}

type pendingArgs struct {
	b       []byte
	missing bool
}

func newDecoder() *decoder {
	native, ia32 := sysTables()
	return &decoder{native: native, ia32: ia32, pending: map[uint64]*pendingArgs{}}
}

// decode fills the decoder's event from one record. It returns nil without an
// error for a record that only completes a later one. The event is valid until
// the next call; raw is not kept, but the event may point into it.
func (d *decoder) decode(raw []byte) (*Event, error) {
	r := &d.rec
	if !r.parse(raw) {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, len(raw))
	}
	switch kind := schema.KernelKind(r.u16(offKind)); kind {
	case kindExecArgs:
		return nil, d.addArgs(r)
	case kindRepeat:
		return d.repeat(r)
	case kindRequestDone:
		return d.finish(r)
	default:
		if kind >= kindCount || !eventKinds[kind] {
			return nil, fmt.Errorf("%w: kind %d", errMalformed, kind)
		}
	}
	if r.u32(offBits)&bitPending != 0 {
		d.requests.add(r.u64(offID), raw)
		return nil, nil
	}
	if r.u32(offBits)&bitSlot != 0 {
		kept := d.slots.At(r.u32(offSlot))
		if kept == nil {
			return nil, fmt.Errorf("%w: slot %d", errMalformed, r.u32(offSlot))
		}
		*kept = append((*kept)[:0], raw...)
	}
	d.fill(r)
	return &d.ev, nil
}

// repeat replays the record that took a slot, with the counts gathered since.
func (d *decoder) repeat(r *record) (*Event, error) {
	t, cpuTime := r.u64(offTime), [5]uint64{r.arg(0), r.arg(1), r.arg(2), r.arg(3), r.arg(4)}
	return d.replay(r.u32(offSlot), r.u64(offID), t, cpuTime)
}

// replay delivers what a slot has counted: count, first, last, bytes, bytes in.
func (d *decoder) replay(slot uint32, id, t uint64, sums [5]uint64) (*Event, error) {
	var first record
	raw := d.slots.Get(slot)
	if !first.parse(raw) || first.u64(offID) != id {
		return nil, fmt.Errorf("%w: repeat of unknown event %d", errMalformed, id)
	}
	d.fill(&first)
	e := &d.ev
	e.Repeat = true
	e.Time = t
	e.Count, e.First, e.Last = sums[0], sums[1], sums[2]
	if e.Kind == schema.KindWrite || e.Kind == schema.KindFlow || e.Kind == schema.KindSendto {
		e.Bytes, e.BytesIn = sums[3], sums[4]
	}
	return e, nil
}

// fill decodes a record that parse accepted.
func (d *decoder) fill(r *record) {
	bits := r.u32(offBits)
	e := &d.ev
	*e = Event{
		Kind: schema.KernelKind(r.u16(offKind)), Hook: HookID(r.u16(offHook)),
		ID: r.u64(offID), Time: r.u64(offTime), Count: 1,
		PID: r.u32(offTgid), TID: r.u32(offTid), PPID: r.u32(offPpid),
		Start: r.u64(offStart), CgroupID: r.u64(offCgroup),
		Device: r.u32(offDev), Inode: r.u64(offIno), FileMode: r.u32(offMode),
		Truncated:    bits&(bitTruncated|bitBaseCut) != 0,
		Unreadable:   bits&bitFailedRead != 0,
		Deleted:      bits&bitDeleted != 0,
		Unreachable:  bits&(bitUnreachable|bitBaseUnreachable) != 0,
		NoResult:     bits&bitNoResult != 0,
		Ingress:      bits&bitIngress != 0,
		FromUser:     bits&bitFromUser != 0,
		RelativePath: bits&bitNoBase != 0,
		Unresolved:   bits&bitUnresolved != 0,
		Claimed:      bits&bitClaimed != 0,
		Created:      bits&bitCreated != 0,
	}
	if bits&bitSlot != 0 {
		e.Slot = r.u32(offSlot) + 1
	}
	switch e.Kind {
	case schema.KindFork, schema.KindNamespace, schema.KindJoin:
		e.MountNS, e.FileMode = e.FileMode, 0
	}
	e.First, e.Last = e.Time, e.Time
	e.setResult(int32(r.u32(offRet)))
	call := d.call(r.u16(offNr), bits)
	if call != nil {
		e.Syscall = call.name
		if call.name == "openat2" {
			e.Resolve = uint32(r.arg(4))
		}
	}
	switch e.Kind {
	case schema.KindExec:
		d.exec(r, bits)
	case schema.KindFork:
		e.ChildPID, e.ChildTID = uint32(r.arg(0)), uint32(r.arg(1))
		e.ChildStart, e.ChildCgroupID = r.arg(2), r.arg(3)
		e.Thread, e.SharesFiles = r.arg(4) != 0, r.arg(5) != 0
	case schema.KindExit:
		status := r.arg(0)
		e.ExitCode, e.Signal, e.Core = int(status>>8&0xff), int(status&0x7f), status&0x80 != 0
		if e.Signal != 0 {
			e.ExitCode = 0
		}
	case KindMovedV1:
		e.Args[0], e.Args[1], e.Name = r.arg(0), r.arg(1), r.seg[segName]
	case KindKernelExec:
		e.Args[0], e.Name = r.arg(0), r.seg[segName]
	case schema.KindSignal:
		e.Args[0], e.Args[1] = r.arg(0), r.arg(1)
	case schema.KindConnect, schema.KindBind, schema.KindListen, schema.KindAccept, schema.KindSendto,
		schema.KindConnectResult, schema.KindDNS, schema.KindTLS, schema.KindFlow:
		d.network(r, bits)
	default:
		d.file(r, bits)
	}
	if call != nil {
		d.arguments(r, call)
	}
	if bits&bitURing != 0 {
		d.request(r)
	}
	if bits&bitCore != 0 {
		e.Syscall, e.Flags = coreDump, r.arg(2)
	}
	if e.RelativePath && (len(e.Path) == 0 || e.Path[0] == '/') && (len(e.Path2) == 0 || e.Path2[0] == '/') {
		e.RelativePath = false // the directory did not matter
	}
}

// request sets what follows from an io_uring request: see submitted and done in
// bpf/uring.h.
func (d *decoder) request(r *record) {
	const fallocate = 17
	e := &d.ev
	e.Syscall = uringSyscall
	switch e.Kind {
	case schema.KindOpen, schema.KindMkdir, schema.KindUnlink, schema.KindRename, schema.KindLink:
		e.Flags, e.Mode, e.Resolve = r.arg(0), uint32(r.arg(1)), uint32(r.arg(2))
		if e.Kind == schema.KindUnlink && e.Flags&0x200 != 0 { // AT_REMOVEDIR
			e.Kind = schema.KindRmdir
		}
	case schema.KindTruncate:
		if r.arg(4) == fallocate {
			e.Args = [6]uint64{r.arg(1), r.arg(2), r.arg(3)}
		} else {
			e.Bytes = r.arg(1)
		}
	case schema.KindWrite:
		if !e.Repeat && e.Errno == 0 {
			e.Bytes = r.arg(5)
		}
	case schema.KindIOUringOp:
		e.Args[0] = r.arg(0)
	case schema.KindSocket:
		e.Args = [6]uint64{r.arg(0), r.arg(1), r.arg(2)}
	}
}

// call finds the table entry of a record's system call, nil when it has none.
func (d *decoder) call(nr uint16, bits uint32) *sysCall {
	t := d.native
	if bits&bitIA32 != 0 {
		t = d.ia32
	}
	if t == nil || int(nr) >= len(t) {
		return nil
	}
	return t[nr]
}

// arguments sets what follows from a record of a system call.
func (d *decoder) arguments(r *record, call *sysCall) {
	e := &d.ev
	var args [6]uint64
	for i := range args {
		args[i] = r.arg(uint8(i))
	}
	e.arguments(call, args, r.u32(offBits)&bitIA32 != 0)
	switch e.Kind {
	case schema.KindWrite:
		if !e.Repeat && e.Errno == 0 {
			e.Bytes = args[5]
		}
	case schema.KindBPF:
		e.Args = [6]uint64{args[0]}
		e.BPF = bpfObject(args[1])
	case schema.KindMmapShared:
		e.BPF = bpfObject(args[0])
	}
	const fioSetOwn, sioCsPgrp = 0x8901, 0x8902 // linux/sockios.h
	if call.prog == progProcess || call.prog == progFcntl || call.prog == progIoctl &&
		(args[1] == fioSetOwn || args[1] == sioCsPgrp) {
		e.About, e.FileMode = e.FileMode, 0
	}
}

// addArgs keeps one part of a long argv until its exec record comes.
func (d *decoder) addArgs(r *record) error {
	id := r.u64(offID)
	p := d.pending[id]
	if p == nil {
		if len(d.pending) >= maxPendingArgs {
			clear(d.pending)
		}
		p = new(pendingArgs)
		d.pending[id] = p
	}
	if r.arg(0) != uint64(len(p.b)) || len(p.b) > 1<<20 || r.u32(offBits)&bitFailedRead != 0 {
		p.missing = true // a part was dropped or could not be read
		return nil
	}
	p.b = append(p.b, r.seg[segName]...)
	return nil
}

// exec decodes a schema.KindExec record. arg 0 is the calling thread's former tid,
// arg 1 the size of the argument area.
func (d *decoder) exec(r *record, bits uint32) {
	e := &d.ev
	e.PathSource = PathKernelObject
	d.path[2] = d.kernelPath(d.path[2][:0], r.seg[segPath])
	e.Exe = end(d.path[2], bits&bitTruncated)
	e.Path = e.Exe
	e.Memfd = isMemfd(e)
	d.path[3] = d.kernelPath(d.path[3][:0], r.seg[segBase])
	e.Cwd = end(d.path[3], bits&bitBaseCut)
	e.Filename, e.Interp = r.seg[segPath2], r.seg[segBase2]
	if old := uint32(r.arg(0)); old != e.TID {
		e.OldTID = old
	}
	area := r.seg[segName]
	e.ArgvTruncated = bits&bitArgsCut != 0
	if p := d.pending[e.ID]; p != nil {
		area = p.b
		e.ArgvTruncated = e.ArgvTruncated || p.missing
		delete(d.pending, e.ID)
	}
	if uint64(len(area)) < r.arg(1) {
		e.ArgvTruncated = true
	}
	d.argv = split(d.argv[:0], area)
	e.Argv = d.argv
	d.keys = split(d.keys[:0], r.seg[segEnv])
	e.EnvKeys = d.keys
	e.EnvTruncated = bits&bitEnvCut != 0
	e.ToolCallID, e.Traceparent = r.seg[segTool], r.seg[segTrace]
	e.Truncated, e.CwdTruncated = bits&bitTruncated != 0, bits&bitBaseCut != 0
}

func (d *decoder) network(r *record, bits uint32) {
	e := &d.ev
	if a := r.seg[segAddr]; len(a) == addressSize {
		e.Family, e.Proto, e.SockType = le.Uint16(a), le.Uint16(a[2:]), le.Uint16(a[4:])
		e.Local = addrPort(e.Family, a[12:28], le.Uint16(a[8:]))
		e.Remote = addrPort(e.Family, a[28:44], le.Uint16(a[10:]))
		if e.Remote.IsValid() && e.Remote.Port() == 0 && e.Remote.Addr().IsUnspecified() {
			e.Remote = netip.AddrPort{} // nobody
		}
	}
	if a := r.seg[segAddr]; len(a) == addressSize && e.Family == afVsock {
		e.VsockRemote = VsockAddr{CID: le.Uint32(a[28:]), Port: le.Uint32(a[32:])}
		e.VsockLocal = VsockAddr{CID: le.Uint32(a[12:]), Port: le.Uint32(a[16:])}
	}
	switch e.Kind {
	case schema.KindDNS, schema.KindTLS:
		e.Payload = r.seg[segName]
	case schema.KindFlow, schema.KindSendto:
		e.Bytes, e.BytesIn = r.arg(4), r.arg(5)
	}
	if e.Family == 1 { // AF_UNIX
		d.unixPath(r, bits)
	}
}

// unixPath sets Path to a unix socket's name.
func (d *decoder) unixPath(r *record, bits uint32) {
	e := &d.ev
	name := r.seg[segName]
	if rest := r.seg[segPath]; len(rest)+len(r.seg[segBase]) > 0 && bits&bitWalked == 0 {
		e.PathSource = nameSource(bits)
		d.path[0] = d.join(d.path[0][:0], r.seg[segBase], rest)
		e.Path = d.path[0]
		e.Given, _, _ = bytes.Cut(r.seg[segGiven], []byte{0})
		return
	}
	switch {
	case bits&bitWalked != 0:
		e.PathSource = PathKernelObject
		d.path[0] = d.kernelPath(d.path[0][:0], r.seg[segPath])
	case len(name) == 0:
		return
	case name[0] == 0: // abstract: shown as ss and /proc/net/unix do
		e.PathSource = PathKernelObject
		d.path[0] = append(append(d.path[0][:0], '@'), name[1:]...)
	default:
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		e.PathSource = PathUserMemory
		d.path[0] = append(d.path[0][:0], name...)
	}
	if e.FromUser {
		e.PathSource = PathUserMemory
	}
	e.Path = d.path[0]
}

// file sets the paths of a record about files.
func (d *decoder) file(r *record, bits uint32) {
	e := &d.ev
	if bits&bitWalked != 0 {
		e.PathSource = PathKernelObject
		d.path[0] = d.kernelPath(d.path[0][:0], r.seg[segPath])
		e.Path = end(d.path[0], bits&bitTruncated)
		e.Memfd = isMemfd(e)
		if e.Unreachable && bytes.HasPrefix(e.Path, []byte("/[")) && e.Device != 0 && e.Device == anonymousDevice() {
			// As /proc/PID/fd shows it. It is no file below the root.
			d.path[0] = append([]byte("anon_inode:"), e.Path[1:]...)
			e.Path, e.Unreachable = d.path[0], false
		}
		if place := r.u16(offPlace); place != 0 {
			d.place = append(d.place[:0], placeNames[int(place)%len(placeNames)]...)
			if int(place) != placeTun {
				d.place = d.kernelPath(d.place, r.seg[segName])
			}
			e.Place = d.place
			if e.Kind == schema.KindOpen {
				e.PlaceProcess = uint32(r.arg(5))
			}
			return
		}
		e.Name = r.seg[segName]
		return
	}
	e.Name = r.seg[segName]
	if e.Kind == schema.KindMemfd {
		e.Path, e.Name = e.Name, nil
		e.PathSource = PathUserMemory
		return
	}
	if d.named(r, r.seg[segPath], r.seg[segBase]) {
		d.path[0] = d.join(d.path[0][:0], r.seg[segBase], r.seg[segPath])
		e.Path, e.Given = end(d.path[0], bits&bitBaseCut), r.seg[segGiven]
	}
	if d.named(r, r.seg[segPath2], r.seg[segBase2]) {
		d.path[1] = d.join(d.path[1][:0], r.seg[segBase2], r.seg[segPath2])
		e.Path2, e.Given2 = end(d.path[1], bits&bitBaseCut), r.seg[segGiven2]
	}
	if e.Kind == schema.KindSymlink {
		e.Path2, e.Name = e.Name, nil
	}
}

// named reports whether the event has a path that begins at base. The kernel says
// of a name that it could not read that the address is bad: base is not the path.
func (d *decoder) named(r *record, name, base []byte) bool {
	e := &d.ev
	if len(name) == 0 && len(base) > 0 && e.Errno == efault {
		e.Unreadable = true
		return false
	}
	if len(name) == 0 && len(base) == 0 {
		return false
	}
	if len(name) == 0 && e.Kind == schema.KindUtime && !e.Claimed {
		e.PathSource = PathKernelObject // futimens(3) gives no name: the file is the descriptor's
		return true
	}
	e.PathSource = nameSource(r.u32(offBits))
	return true
}

// nameSource tells where the names of a record are from.
func nameSource(bits uint32) PathSource {
	if bits&bitCopied != 0 {
		return PathKernelCopy
	}
	return PathUserMemory
}

// kernelPath turns a walk (names leaf first, each followed by '/') into an
// absolute path. Objects without a name (pipes, sockets) get the one that
// /proc/pid/fd shows.
func (d *decoder) kernelPath(dst, walk []byte) []byte {
	start := len(dst)
	for end := len(walk) - 1; end >= 0; {
		i := bytes.LastIndexByte(walk[:end], '/')
		if name := walk[i+1 : end]; len(name) > 0 {
			dst = append(append(dst, '/'), name...)
		}
		end = i
	}
	if len(dst) > start {
		return dst
	}
	e := &d.ev
	switch {
	case e.Unreachable && e.FileMode&0xf000 == 0x1000:
		return fmt.Appendf(dst, "pipe:[%d]", e.Inode)
	case e.Unreachable && e.FileMode&0xf000 == 0xc000:
		return fmt.Appendf(dst, "socket:[%d]", e.Inode)
	}
	return append(dst, '/')
}

// join makes what remains of a name absolute: base is a walk of the directory
// that it is in. A ".." that remains was not resolved, and is not guessed: it
// stays as it stands, and the event says so.
func (d *decoder) join(dst, base, name []byte) []byte {
	if d.ev.RelativePath && len(base) == 0 && (len(name) == 0 || name[0] != '/') {
		return append(dst, name...)
	}
	start := len(dst)
	if dst = d.kernelPath(dst, base); len(dst) == start+1 {
		dst = dst[:start] // the root
	}
	for len(name) > 0 {
		part, rest, _ := bytes.Cut(name, []byte{'/'})
		name = rest
		switch string(part) {
		case "", ".":
			continue
		case "..":
			d.ev.Unresolved = true
		}
		dst = append(append(dst, '/'), part...)
	}
	if len(dst) == start {
		dst = append(dst, '/')
	}
	return dst
}

// finish makes the event of a request from its submission's record and the end.
func (d *decoder) finish(end *record) (*Event, error) {
	var submitted record
	raw := d.requests.take(end.u64(offID))
	if !submitted.parse(raw) {
		return nil, nil // it was dropped, and counted
	}
	t, ret, bits := end.u64(offTime), int32(end.u32(offRet)), end.u32(offBits)
	d.fill(&submitted)
	e := &d.ev
	e.Time, e.First, e.Last, e.NoResult = t, t, t, false
	e.setResult(ret)
	if bits&bitWalked != 0 {
		e.Device, e.Inode, e.FileMode = end.u32(offDev), end.u64(offIno), end.u32(offMode)
		e.Deleted, e.Unreachable, e.Truncated = bits&bitDeleted != 0, bits&bitUnreachable != 0, bits&bitTruncated != 0
		e.Unresolved, e.RelativePath, e.Given = false, false, nil
		e.PathSource = PathKernelObject
		d.path[0] = d.kernelPath(d.path[0][:0], end.seg[segPath])
		e.Path = d.path[0]
	}
	return e, nil
}

// abandoned makes the event of a request whose end never came, or has not for
// long; nil when none is left. Of one that completes quietly the result is not
// known: many operations fail as quietly as they succeed.
func (d *decoder) abandoned(keep int) *Event {
	var submitted record
	raw := d.requests.oldest(keep)
	if !submitted.parse(raw) {
		return nil
	}
	d.fill(&submitted)
	d.ev.NoResult = true
	return &d.ev
}

// bpfObject is what object_of in bpf/bpfcall.h found.
func bpfObject(v uint64) BPFObject {
	return BPFObject{Type: BPFType(v >> 32 & 0xff), ID: uint32(v), Writable: v>>40&1 != 0}
}

// split cuts an area of NUL-terminated strings; empty ones count. A last
// string without its NUL was cut.
func split(dst [][]byte, area []byte) [][]byte {
	for len(area) > 0 {
		i := bytes.IndexByte(area, 0)
		if i < 0 {
			return append(dst, area)
		}
		dst = append(dst, area[:i:i])
		area = area[i+1:]
	}
	return dst
}

// A struct address in segAddr: family, protocol, socket type, padding, local
// and remote port (all u16, ports in host order), local and remote address of 16
// bytes each, padding.
const addressSize = 48

const afVsock = 40

// VsockAddr is an address of AF_VSOCK: a machine and a port of it, see vsock(7).
type VsockAddr struct{ CID, Port uint32 }

func addrPort(family uint16, a []byte, port uint16) netip.AddrPort {
	switch family {
	case 2: // AF_INET
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[:4])), port)
	case 10: // AF_INET6
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(a)), port)
	}
	return netip.AddrPort{}
}

// placeNames are where the file systems of enum place in bpf/record.h usually are.
var placeNames = [...]string{"", "/proc", "/sys", "/proc/sys/fs/binfmt_misc", "/sys/fs/cgroup", "/dev/net/tun"}

const placeTun = 5

// end is what is kept of a path, which is its end where it was cut: no absolute
// path then.
func end(path []byte, cut uint32) []byte {
	if cut != 0 && len(path) > 1 {
		return path[1:]
	}
	return path
}

const efault = 14

func isMemfd(e *Event) bool {
	return e.Unreachable && bytes.HasPrefix(e.Path, []byte("/memfd:"))
}

// A record on the ring, as struct record in bpf/record.h lays it out. Decoding
// reads fields at these offsets; TestLayout compares them with the object's BTF.
const (
	offTime    = 0
	offStart   = 8
	offCgroup  = 16
	offID      = 24
	offTgid    = 32
	offTid     = 36
	offPpid    = 40
	offRet     = 44
	offKind    = 48
	offHook    = 50
	offBits    = 52
	offArg     = 56
	offIno     = 104
	offDev     = 112
	offMode    = 116
	offSeg     = 120
	offSlot    = 136
	offNr      = 140
	offCPU     = 142
	offSerial  = 144
	offStream  = 148
	offPlace   = 150
	recordSize = 152
)

// Kinds and bits of records that never leave the decoder, and its segments.
const (
	bitTruncated       = 1 << 0
	bitFailedRead      = 1 << 1
	bitWalked          = 1 << 2
	bitDeleted         = 1 << 3
	bitUnreachable     = 1 << 4
	bitArgsCut         = 1 << 5
	bitEnvCut          = 1 << 6
	bitNoResult        = 1 << 8
	bitIngress         = 1 << 9
	bitFromUser        = 1 << 10
	bitSlot            = 1 << 11
	bitBaseUnreachable = 1 << 12
	bitIA32            = 1 << 13
	bitNoBase          = 1 << 14
	bitAddressFirst    = 1 << 15
	bitBaseCut         = 1 << 16
	bitUnresolved      = 1 << 17
	bitPending         = 1 << 18
	bitURing           = 1 << 19
	bitQuiet           = 1 << 20
	bitClaimed         = 1 << 21
	bitCreated         = 1 << 22
	bitCopied          = 1 << 23
	bitCore            = 1 << 24

	segPath  = 0
	segBase  = 1
	segPath2 = 2
	segBase2 = 3
	segName  = 4
	segEnv   = 5
	segTool  = 6
	segTrace = 7
	segCount = 8

	// Other records use a segment for other things.
	segAddr   = segEnv   // network: struct address
	segGiven  = segTool  // names: the first as the caller wrote it
	segGiven2 = segTrace // the second
)

// Both instruction sets are little-endian.
var le = binary.LittleEndian

// record is one raw record with bounds-checked segments.
type record struct {
	b   []byte
	seg [segCount][]byte
}

// parse checks the fixed part and cuts the segments. It keeps b.
func (r *record) parse(b []byte) bool {
	if len(b) < recordSize {
		return false
	}
	r.b = b
	rest := b[recordSize:]
	if r.u32(offBits)&bitAddressFirst != 0 {
		if len(rest) < addressSize || r.u16(offSeg+2*segAddr) != addressSize {
			return false
		}
		r.seg = [segCount][]byte{segAddr: rest[:addressSize]}
		rest = rest[addressSize:]
		n := int(r.u16(offSeg + 2*segName))
		if n > len(rest) {
			return false
		}
		r.seg[segName] = rest[:n:n]
		return true
	}
	for i := range r.seg {
		n := int(le.Uint16(b[offSeg+2*i:]))
		if n > len(rest) {
			return false
		}
		r.seg[i], rest = rest[:n:n], rest[n:]
	}
	return true
}

func (r *record) u16(off int) uint16 { return le.Uint16(r.b[off:]) }
func (r *record) u32(off int) uint32 { return le.Uint32(r.b[off:]) }
func (r *record) u64(off int) uint64 { return le.Uint64(r.b[off:]) }
func (r *record) arg(i uint8) uint64 { return le.Uint64(r.b[offArg+8*int(i):]) }
