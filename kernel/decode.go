package kernel

import (
	"errors"
	"fmt"

	"github.com/assay-run/assay-run/kernel/internal/slots"
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
	switch kind := Kind(r.u16(offKind)); kind {
	case kindExecArgs:
		return nil, d.addArgs(r)
	case kindRepeat:
		return d.repeat(r)
	case kindRequestDone:
		return d.finish(r)
	case 0, kindExecEnv, kindMax:
		return nil, fmt.Errorf("%w: kind %d", errMalformed, kind)
	default:
		if kind > kindMax {
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
	if e.Kind == KindWrite || e.Kind == KindTraffic || e.Kind == KindSend {
		e.Bytes, e.BytesIn = sums[3], sums[4]
	}
	return e, nil
}

// fill decodes a record that parse accepted.
func (d *decoder) fill(r *record) {
	bits := r.u32(offBits)
	e := &d.ev
	*e = Event{
		Kind: Kind(r.u16(offKind)), Hook: HookID(r.u16(offHook)),
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
	case KindFork, KindNamespace, KindJoinedCgroup:
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
	case KindExec:
		d.exec(r, bits)
	case KindFork:
		e.ChildPID, e.ChildTID = uint32(r.arg(0)), uint32(r.arg(1))
		e.ChildStart, e.ChildCgroupID = r.arg(2), r.arg(3)
		e.Thread, e.SharesFiles = r.arg(4) != 0, r.arg(5) != 0
	case KindExit:
		status := r.arg(0)
		e.ExitCode, e.Signal, e.Core = int(status>>8&0xff), int(status&0x7f), status&0x80 != 0
		if e.Signal != 0 {
			e.ExitCode = 0
		}
	case KindMovedV1:
		e.Args[0], e.Args[1], e.Name = r.arg(0), r.arg(1), r.seg[segName]
	case KindKernelExec:
		e.Name = r.seg[segName]
	case KindSignal:
		e.Args[0], e.Args[1] = r.arg(0), r.arg(1)
	case KindConnect, KindBind, KindListen, KindAccept, KindSend, KindConnectResult, KindDNS, KindTLSHello, KindTraffic:
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
	if e.RelativePath && (len(e.Path) == 0 || e.Path[0] == '/') && (len(e.Path2) == 0 || e.Path2[0] == '/') {
		e.RelativePath = false // the directory did not matter
	}
}

// setResult sets what a call returned.
func (e *Event) setResult(ret int32) {
	switch ret {
	case -512, -513, -514, -516: // ERESTARTSYS and its kin, see include/linux/errno.h
		// A signal came. Whether the call begins anew or returns EINTR is
		// decided after the tracepoint; a program can only ever see EINTR.
		ret = -4
	}
	e.Ret, e.Errno = ret, 0
	if ret < 0 && ret >= -4095 {
		e.Errno = -ret
	}
}

// request sets what follows from an io_uring request: see submitted and done in
// bpf/uring.h.
func (d *decoder) request(r *record) {
	const fallocate = 17
	e := &d.ev
	e.Syscall = uringSyscall
	switch e.Kind {
	case KindOpen, KindMkdir, KindUnlink, KindRename, KindLink:
		e.Flags, e.Mode, e.Resolve = r.arg(0), uint32(r.arg(1)), uint32(r.arg(2))
		if e.Kind == KindUnlink && e.Flags&0x200 != 0 { // AT_REMOVEDIR
			e.Kind = KindRmdir
		}
	case KindTruncate:
		if r.arg(4) == fallocate {
			e.Args = [6]uint64{r.arg(1), r.arg(2), r.arg(3)}
		} else {
			e.Bytes = r.arg(1)
		}
	case KindWrite:
		if !e.Repeat && e.Errno == 0 {
			e.Bytes = r.arg(5)
		}
	case KindIOUringOp:
		e.Args[0] = r.arg(0)
	case KindNewSocket:
		e.Args = [6]uint64{r.arg(0), r.arg(1), r.arg(2)}
	}
}
