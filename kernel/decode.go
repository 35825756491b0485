package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"strings"

	"github.com/assay-run/assay-run/kernel/internal/slots"
	"github.com/assay-run/assay-run/schema"
)

// errMalformed is wrapped by every decoding error.
var errMalformed = errors.New("malformed record")

// maxPendingArgs bounds the execs whose final record is missing, in case some are lost. In practice there is one per
// CPU.
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

	ev    Event
	rec   record
	buf   []byte // to build a path in
	paths stringCache
}

// stringCache avoids another copy of a recently used path.
type stringCache [512]string

var stringSeed = maphash.MakeSeed()

func (c *stringCache) get(p []byte) string {
	if len(p) == 0 || len(p) > 256 {
		return string(p)
	}
	s := &c[maphash.Bytes(stringSeed, p)%uint64(len(c))]
	if *s != string(p) {
		*s = string(p)
	}
	return *s
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
// the next call; raw is not kept.
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
		e.BytesOut, e.BytesIn = sums[3], sums[4]
	}
	return e, nil
}

// fill decodes a record that parse accepted.
func (d *decoder) fill(r *record) {
	bits := r.u32(offBits)
	e := &d.ev
	*e = Event{
		KernelEvent: schema.KernelEvent{
			Kind: schema.KernelKind(r.u16(offKind)), Count: 1, PID: r.u32(offTgid), TID: r.u32(offTid),
			Claimed: bits&bitClaimed != 0, Created: bits&bitCreated != 0, Marks: marks(bits),
		},
		Hook: HookID(r.u16(offHook)), ID: r.u64(offID), Time: r.u64(offTime),
		Task: Task{
			PID: r.u32(offTgid), TID: r.u32(offTid), PPID: r.u32(offPpid), Start: r.u64(offStart),
			CgroupID: r.u64(offCgroup),
		},
		Device: r.u32(offDev), Inode: r.u64(offIno), FileMode: r.u32(offMode),
		Ingress: bits&bitIngress != 0, FromUser: bits&bitFromUser != 0,
	}
	if bits&bitSlot != 0 {
		e.Slot = r.u32(offSlot) + 1
	}
	e.First, e.Last = e.Time, e.Time
	switch {
	case bits&bitURing != 0:
		e.Syscall = uringSyscall
	case bits&bitCore != 0:
		e.Syscall = coreDump
	}
	call := d.call(r.u16(offNr), bits)
	if call != nil {
		e.Syscall = call.name
		if call.name == "openat2" {
			e.Resolve = r.arg(4) & math.MaxUint32
		}
	}
	e.setResult(int32(r.u32(offRet)), bits&bitNoResult == 0)
	switch e.Kind {
	case schema.KindExec:
		d.exec(r, bits)
	case schema.KindFork:
		d.fork(r)
	case schema.KindExit: // as wait(2) encodes it
		if e.WaitStatus = uint32(r.arg(0)) & 0xff; e.WaitStatus&0x7f == 0 {
			e.WaitStatus = uint32(r.arg(0)) & 0xff00
		}
	case KindMovedV1, KindKernelExec:
		e.setArgs(r.arg(0), r.arg(1))
		e.Value = string(r.seg[segName])
	case KindUnmodelled:
		d.opening(r, bits)
		call = nil
	case schema.KindSignal:
		e.setArgs(r.arg(0), r.arg(1))
		e.Value = schema.SignalName(uint32(r.arg(1)))
		e.About, e.FileMode = e.FileMode, 0
	case schema.KindLeave, schema.KindJoin:
		e.PPID, e.CgroupID, e.Value = e.Task.PPID, e.Task.CgroupID, string(r.seg[segName])
		e.MountNS, e.FileMode, e.MovedByRun, e.Tasks = e.FileMode, 0, r.arg(2) != 0, r.arg(3)
	case schema.KindConnect, schema.KindBind, schema.KindListen, schema.KindAccept, schema.KindSendto,
		schema.KindConnectResult, schema.KindForeignSocket, schema.KindDNS, schema.KindTLS, schema.KindFlow:
		d.network(r, bits)
	default:
		if e.Kind == schema.KindNamespace {
			e.MountNS, e.FileMode = e.FileMode, 0
		}
		d.file(r, bits)
	}
	if call != nil {
		d.arguments(r, call)
	}
	if bits&bitURing != 0 {
		d.request(r)
	}
	if bits&bitCore != 0 {
		e.Call, e.Flags = coreDump, r.arg(2)
	}
	if bits&(bitTruncated|bitBaseCut) != 0 && e.Kind != schema.KindExec {
		e.cut(len(r.seg[segPath2])+len(r.seg[segBase2]) > 0 || e.Kind == schema.KindSymlink)
	}
	if e.Marks&schema.MarkRelative != 0 && (e.Value == "" || e.Value[0] == '/') &&
		(e.Target == "" || e.Target[0] == '/') {
		e.Marks &^= schema.MarkRelative // the directory did not matter
	}
}

// marks are those that a record's bits are.
func marks(bits uint32) (m schema.Marks) {
	for _, b := range [...]struct {
		bits uint32
		mark schema.Marks
	}{
		{bitDeleted, schema.MarkDeleted}, {bitNoBase, schema.MarkRelative}, {bitFailedRead, schema.MarkUnreadable},
		{bitUnreachable | bitBaseUnreachable, schema.MarkUnreachable}, {bitUnresolved, schema.MarkUnresolved},
	} {
		if bits&b.bits != 0 {
			m |= b.mark
		}
	}
	return m
}

// fork decodes a schema.KindFork record. The line is the child's, that of a thread its process's.
func (d *decoder) fork(r *record) {
	e := &d.ev
	e.MountNS, e.FileMode = e.FileMode, 0
	e.Child = Task{PID: uint32(r.arg(0)), TID: uint32(r.arg(1)), PPID: e.Task.PID, Start: r.arg(2), CgroupID: r.arg(3)}
	e.Thread, e.SharesFiles = r.arg(4) != 0, r.arg(5) != 0
	if e.Thread {
		e.TID = e.Child.TID
		return
	}
	e.PID, e.TID, e.PPID, e.CgroupID = e.Child.PID, e.Child.PID, e.Task.PID, e.Child.CgroupID
}

// request sets what follows from an io_uring request: see submitted and done in
// bpf/uring.h.
func (d *decoder) request(r *record) {
	const fallocate = 17
	e := &d.ev
	e.Syscall, e.Call = uringSyscall, uringSyscall
	switch e.Kind {
	case schema.KindOpen, schema.KindMkdir, schema.KindUnlink, schema.KindRename, schema.KindLink:
		e.Flags = r.arg(0)
		switch {
		case e.Kind == schema.KindOpen:
			e.Mode, e.Resolve = uint32(r.arg(1)), r.arg(2)&math.MaxUint32
		case e.Kind == schema.KindMkdir:
			e.Mode = uint32(r.arg(1))
		case e.Kind == schema.KindUnlink && e.Flags&0x200 != 0: // AT_REMOVEDIR
			e.Kind = schema.KindRmdir
		}
	case schema.KindTruncate:
		if r.arg(4) == fallocate {
			e.Call = "fallocate"
			e.setArgs(r.arg(1), r.arg(2), r.arg(3))
		} else {
			e.setArgs(r.arg(1))
		}
	case schema.KindWrite:
		if e.Errno == 0 {
			e.BytesOut = r.arg(5)
		}
	case schema.KindIOUringOp:
		e.setArgs(r.arg(0))
	case schema.KindSocket:
		e.setArgs(r.arg(0), r.arg(1), r.arg(2))
	}
}

// call finds the table entry of a record's system call, nil when it has none.
func (d *decoder) call(nr uint16, bits uint32) *sysCall {
	t := d.native
	if bits&bitIA32 != 0 {
		t = d.ia32
	}
	if t == nil || int(nr) >= len(t) || t[nr] == nil || t[nr].prog == progRead || t[nr].prog == progWait {
		return nil // these make no record, and records without a call have the number 0, which is that of read
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
		if e.Errno == 0 {
			e.BytesOut = args[5]
		}
	case schema.KindMount:
		if call.name == "mount" {
			e.MountType = mountTypeOf(args[2])
		}
	case schema.KindBPF:
		e.setArgs(args[0])
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
// arg 1 the size of the argument area, arg 2 the capabilities. Value is the kernel's path of the image, Target
// what was passed to execve where it is another.
func (d *decoder) exec(r *record, bits uint32) {
	e := &d.ev
	e.Value = d.text(end(d.kernelPath(d.buf[:0], r.seg[segPath]), bits&bitTruncated))
	d.memfd()
	e.Cwd = d.text(end(d.kernelPath(d.buf[:0], r.seg[segBase]), bits&bitBaseCut))
	if name := string(r.seg[segPath2]); name != e.Value {
		e.Target = name
	}
	interp, loader, _ := bytes.Cut(r.seg[segBase2], []byte{0})
	if e.Interp = string(interp); len(loader) > 0 {
		e.Loader = d.text(d.kernelPath(d.buf[:0], loader))
	}
	if caller := uint32(r.arg(0)); caller != 0 {
		e.TID = caller
	}
	e.PPID, e.CgroupID = e.Task.PPID, e.Task.CgroupID
	area := r.seg[segName]
	whole := bits&bitArgsCut == 0
	if p := d.pending[e.ID]; p != nil {
		area = p.b
		whole = whole && !p.missing
		delete(d.pending, e.ID)
	}
	if !whole || uint64(len(area)) < r.arg(1) {
		e.Truncated |= schema.FieldArgv
	}
	e.Argv = split(area)
	e.EnvKeys = split(r.seg[segEnv])
	if bits&bitEnvCut != 0 {
		e.Truncated |= schema.FieldEnvKeys
	}
	e.CallInEnv, e.Traceparent = string(r.seg[segTool]), string(r.seg[segTrace])
	if bits&bitTruncated != 0 {
		e.Truncated |= schema.FieldValue
	}
	if bits&bitBaseCut != 0 {
		e.Truncated |= schema.FieldCwd
	}
}

func (d *decoder) network(r *record, bits uint32) {
	e := &d.ev
	var a ends
	if b := r.seg[segAddr]; len(b) == addressSize {
		a = readEnds(b)
		e.SockType = a.sockType
		if a.remote.IsValid() && a.remote.Port() == 0 && a.remote.Addr().IsUnspecified() {
			a.remote = netip.AddrPort{} // nobody
		}
	}
	switch e.Kind {
	case schema.KindDNS, schema.KindTLS:
		e.Payload = bytes.Clone(r.seg[segName])
	case schema.KindFlow, schema.KindSendto:
		e.BytesOut, e.BytesIn = r.arg(4), r.arg(5)
	}
	if a.family == afUnix {
		d.unixPath(r, bits)
	}
	if e.Kind == schema.KindForeignSocket {
		e.PeerUnknown = a.unknownPeer()
	}
	e.SetEnds(a.family, a.proto, a.local, a.remote)
	if a.family == afVsock {
		e.SetVsock(a.vsock[0], a.vsock[1])
	}
}

// unknownPeer reports whether the addresses of a connected socket do not say whom it exchanges data with.
func (a *ends) unknownPeer() bool {
	const inet, inet6, raw = 2, 10, 3 // AF_INET, AF_INET6, SOCK_RAW
	switch a.family {
	case afUnix:
		return false
	case inet, inet6:
		return a.sockType == raw || !a.remote.IsValid() || a.remote.Addr().IsUnspecified()
	}
	return Carries(uint64(a.family), uint64(a.proto))
}

// unixPath sets Value to a unix socket's name.
func (d *decoder) unixPath(r *record, bits uint32) {
	e := &d.ev
	name := r.seg[segName]
	switch rest := r.seg[segPath]; {
	case len(rest)+len(r.seg[segBase]) > 0 && bits&bitWalked == 0:
		e.KernelCopy = bits&bitCopied != 0
		e.UserMemory = !e.KernelCopy
		e.Value = d.text(d.join(d.buf[:0], r.seg[segBase], rest))
		given, _, _ := bytes.Cut(r.seg[segGiven], []byte{0})
		e.Given = string(given)
		return
	case bits&bitWalked != 0:
		e.Value = d.text(d.kernelPath(d.buf[:0], r.seg[segPath]))
	case len(name) == 0:
		return
	case name[0] == 0: // abstract: shown as ss and /proc/net/unix do
		e.Value = "@" + string(name[1:])
	default:
		name, _, _ = bytes.Cut(name, []byte{0})
		e.Value, e.UserMemory = string(name), true
	}
	e.UserMemory = e.UserMemory || e.FromUser
}

// text is a path that was made in the decoder's buffer.
func (d *decoder) text(path []byte) string {
	if cap(path) > cap(d.buf) {
		d.buf = path[:0]
	}
	return d.paths.get(path)
}

// memfd marks a file in anonymous memory.
func (d *decoder) memfd() {
	if e := &d.ev; e.Marks&schema.MarkUnreachable != 0 && strings.HasPrefix(e.Value, "/memfd:") {
		e.Marks |= schema.MarkMemfd
	}
}

// file sets the paths of a record about files: that of an open file, or names.
func (d *decoder) file(r *record, bits uint32) {
	e := &d.ev
	if way := r.seg[segWay]; len(way) >= 4 {
		if age := le.Uint32(way); age != 1<<32-1 {
			e.Begun = e.Time - uint64(age)
		}
		e.Way = string(way[4:])
	}
	if bits&bitWalked == 0 {
		d.names(r, bits)
		return
	}
	e.Value = d.text(end(d.kernelPath(d.buf[:0], r.seg[segPath]), bits&bitTruncated))
	d.memfd()
	if e.Marks&schema.MarkUnreachable != 0 && strings.HasPrefix(e.Value, "/[") && e.Device != 0 &&
		e.Device == anonymousDevice() {
		// As /proc/PID/fd shows it. It is no file below the root.
		e.Value, e.Marks = "anon_inode:"+e.Value[1:], e.Marks&^schema.MarkUnreachable
	}
	place := int(r.u16(offPlace))
	if place == 0 {
		e.Target = string(r.seg[segName])
		return
	}
	path, in := append(d.buf[:0], placeNames[place%len(placeNames)]...), r.seg[segName]
	switch {
	case place == placeTun, place == placeMemory:
	case place < placeDevice:
		path = d.kernelPath(path, in)
	case len(in) < 4:
	case place == placeControl:
		path = d.kernelPath(fmt.Appendf(path, "%x", le.Uint32(in)), in[4:])
	default:
		const blockDevice = 0x6000 // S_IFBLK
		kind, number := "char", le.Uint32(in)
		if e.FileMode&0xf000 == blockDevice {
			kind = "block"
		}
		path = fmt.Appendf(path, "%s/%d:%d", kind, number>>20, number&(1<<20-1))
	}
	e.Place = d.text(path)
	if e.Kind == schema.KindOpen && place == placeProc {
		e.PlaceProcess = uint32(r.arg(5))
	}
}

// names sets the paths of a record of names.
func (d *decoder) names(r *record, bits uint32) {
	e := &d.ev
	if e.Kind == schema.KindMemfd {
		e.Value, e.UserMemory = string(r.seg[segName]), true
		return
	}
	if d.named(r, r.seg[segPath], r.seg[segBase]) {
		e.Value = d.text(end(d.join(d.buf[:0], r.seg[segBase], r.seg[segPath]), bits&bitBaseCut))
		e.Given = string(r.seg[segGiven])
	}
	if d.named(r, r.seg[segPath2], r.seg[segBase2]) {
		e.Target = d.text(end(d.join(d.buf[:0], r.seg[segBase2], r.seg[segPath2]), bits&bitBaseCut))
		e.TargetGiven = string(r.seg[segGiven2])
	}
	if name := r.seg[segName]; len(name) > 0 {
		e.Target = string(name)
	}
}

// named reports whether the event has a path that begins at base. The kernel says
// of a name that it could not read that the address is bad: base is not the path.
func (d *decoder) named(r *record, name, base []byte) bool {
	e := &d.ev
	if len(name) == 0 && len(base) > 0 && e.Errno == efault {
		e.Marks |= schema.MarkUnreadable
		return false
	}
	if len(name) == 0 && len(base) == 0 {
		return false
	}
	if len(name) == 0 && e.Kind == schema.KindUtime && !e.Claimed {
		return true // futimens(3) gives no name: the file is the descriptor's
	}
	e.KernelCopy = r.u32(offBits)&bitCopied != 0
	e.UserMemory = !e.KernelCopy
	return true
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
	case e.Marks&schema.MarkUnreachable != 0 && e.FileMode&0xf000 == 0x1000:
		return fmt.Appendf(dst, "pipe:[%d]", e.Inode)
	case e.Marks&schema.MarkUnreachable != 0 && e.FileMode&0xf000 == 0xc000:
		return fmt.Appendf(dst, "socket:[%d]", e.Inode)
	}
	return append(dst, '/')
}

// join makes what remains of a name absolute: base is a walk of the directory
// that it is in. A ".." that remains was not resolved, and is not guessed: it
// stays as it stands, and the event says so.
func (d *decoder) join(dst, base, name []byte) []byte {
	if d.ev.Marks&schema.MarkRelative != 0 && len(base) == 0 && (len(name) == 0 || name[0] != '/') {
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
			d.ev.Marks |= schema.MarkUnresolved
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
	e.Time, e.First, e.Last = t, t, t
	e.setResult(ret, true)
	if bits&bitWalked != 0 {
		e.Device, e.Inode, e.FileMode = end.u32(offDev), end.u64(offIno), end.u32(offMode)
		e.Marks = e.Marks&schema.MarkUnreadable | marks(bits&(bitDeleted|bitUnreachable))
		e.Given, e.Truncated, e.UserMemory, e.KernelCopy = "", 0, false, false
		if bits&bitTruncated != 0 {
			e.cut(false)
		}
		e.Value = d.text(d.kernelPath(d.buf[:0], end.seg[segPath]))
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
	d.ev.HasResult = false
	return &d.ev
}

// bpfObject is what object_of in bpf/bpfcall.h found.
func bpfObject(v uint64) BPFObject {
	return BPFObject{Type: BPFType(v >> 32 & 0xff), ID: uint32(v), Writable: v>>40&1 != 0, Program: uint8(v >> 48)}
}

// split cuts an area of NUL-terminated strings; empty ones count. A last
// string without its NUL was cut. The strings share one copy of the area.
func split(area []byte) []string {
	list := make([]string, 0, bytes.Count(area, []byte{0})+1)
	for text := string(area); text != ""; {
		var one string
		one, text, _ = strings.Cut(text, "\x00")
		list = append(list, one)
	}
	return list
}

// A struct address in segAddr: family, protocol, socket type, padding, local
// and remote port (all u16, ports in host order), local and remote address of 16
// bytes each, padding.
const addressSize = 48

type ends struct {
	family, proto, sockType uint16
	local, remote           netip.AddrPort
	vsock                   [2]VsockAddr // the same of AF_VSOCK
}

func readEnds(b []byte) ends {
	a := ends{family: le.Uint16(b), proto: le.Uint16(b[2:]), sockType: le.Uint16(b[4:])}
	a.local = addrPort(a.family, b[12:28], le.Uint16(b[8:]))
	a.remote = addrPort(a.family, b[28:44], le.Uint16(b[10:]))
	if a.family == afVsock {
		a.vsock = [2]VsockAddr{{le.Uint32(b[12:]), le.Uint32(b[16:])}, {le.Uint32(b[28:]), le.Uint32(b[32:])}}
	}
	return a
}

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
var placeNames = [...]string{"", "/proc", "/sys", "/proc/sys/fs/binfmt_misc", "/sys/fs/cgroup", "/dev/net/tun",
	PlaceMemory, "/dev/", "magic:"}

const placeProc, placeTun, placeMemory, placeDevice, placeControl = 1, 5, 6, 7, 8

// PlaceMemory is the Event.Place of a device that is the memory or the registers of the machine: mem, kmem, port, msr.
const PlaceMemory = "/dev/mem"

// end is what is kept of a path, which is its end where it was cut: no absolute
// path then.
func end(path []byte, cut uint32) []byte {
	if cut != 0 && len(path) > 1 {
		return path[1:]
	}
	return path
}

const efault = 14

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
	segWay    = segEnv   // names: Event.Way
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

// parse checks the fixed part and cuts the segments, and reports whether they are well formed. It keeps b.
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
