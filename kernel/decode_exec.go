package kernel

import (
	"bytes"
	"fmt"
)

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

// exec decodes a KindExec record. arg 0 is the calling thread's former tid,
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

// String is the kind's name in errors and tests.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", k)
}

var kindNames = [kindMax]string{
	KindExec: "exec", KindExecFailed: "exec_failed", KindFork: "fork", KindExit: "exit", KindOpen: "open",
	KindWrite: "write", KindMmap: "mmap", KindRename: "rename", KindUnlink: "unlink", KindRmdir: "rmdir",
	KindLink: "link", KindSymlink: "symlink", KindMkdir: "mkdir", KindMknod: "mknod", KindTruncate: "truncate",
	KindChmod: "chmod", KindChown: "chown", KindSetxattr: "setxattr", KindRemovexattr: "removexattr",
	KindChdir: "chdir", KindChroot: "chroot", KindConnect: "connect", KindBind: "bind", KindListen: "listen",
	KindAccept: "accept", KindSend: "send", KindDNS: "dns", KindTLSHello: "tls_hello", KindTraffic: "traffic",
	KindSetID: "setid", KindCapset: "capset", KindPtrace: "ptrace", KindMount: "mount", KindNamespace: "namespace",
	KindBPF: "bpf", KindMemfd: "memfd", KindModule: "module", KindIOUring: "io_uring", KindIOUringOp: "io_uring_op",
	KindLeftCgroup: "left_cgroup", KindJoinedCgroup: "joined_cgroup", KindCompat: "compat",
	KindUtime: "utime", KindConnectResult: "connect_result",
	KindPrivileged: "privileged", KindNewSocket: "socket", KindSignal: "signal",
	KindMovedV1: "moved_v1", KindKernelExec: "kernel_exec",
}
