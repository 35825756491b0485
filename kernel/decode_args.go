package kernel

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
	case KindWrite:
		if !e.Repeat && e.Errno == 0 {
			e.Bytes = args[5]
		}
	case KindBPF:
		e.Args = [6]uint64{args[0]}
		e.BPF = bpfObject(args[1])
	case KindMmap:
		e.BPF = bpfObject(args[0])
	case KindPtrace:
		e.PidLevel, e.FileMode = e.FileMode, 0
	}
}

// arguments sets what follows from a system call's arguments. ia32 is a 32-bit
// program's call.
func (e *Event) arguments(call *sysCall, args [6]uint64, ia32 bool) {
	// Arguments that are ints come with arbitrary upper halves.
	if call.flagsArg != noArg {
		e.Flags = args[call.flagsArg]
		if call.name != "openat2" && call.name != "unshare" && call.name != "clone3" {
			e.Flags = uint64(uint32(e.Flags))
		}
	}
	if call.modeArg != noArg {
		e.Mode = uint32(args[call.modeArg])
	}
	switch call.name {
	case "creat":
		e.Flags = 0x241 // O_CREAT|O_WRONLY|O_TRUNC
	case "unlinkat":
		if e.Flags&0x200 != 0 { // AT_REMOVEDIR
			e.Kind = KindRmdir
		}
	case "chown", "lchown", "fchown":
		e.UID, e.GID = uint32(args[1]), uint32(args[2])
	case "fchownat":
		e.UID, e.GID = uint32(args[2]), uint32(args[3])
	case "truncate", "ftruncate":
		e.Bytes = args[1]
	case "truncate64", "ftruncate64":
		e.Bytes = args[1] | args[2]<<32
	case "mknod":
		e.Args[0] = uint64(uint32(args[2]))
	case "mknodat":
		e.Args[0] = uint64(uint32(args[3]))
	case "fallocate":
		e.Args = [6]uint64{args[1], args[2], args[3]}
		if ia32 { // in halves
			e.Args = [6]uint64{args[1], args[2] | args[3]<<32, args[4] | args[5]<<32}
		}
	}
	switch e.Kind {
	case KindSetID, KindCapset, KindPtrace, KindMount, KindNamespace, KindModule, KindIOUring, KindCompat, KindPrivileged, KindNewSocket, KindBPF:
		for i := range e.Args {
			if call.numbers&(1<<i) != 0 {
				e.Args[i] = args[i]
			}
		}
	}
}

// bpfObject is what object_of in bpf/bpfcall.h found.
func bpfObject(v uint64) BPFObject {
	return BPFObject{Type: BPFType(v >> 32 & 0xff), ID: uint32(v), Writable: v>>40&1 != 0}
}
