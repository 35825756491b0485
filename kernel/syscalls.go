package kernel

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Handlers, in the order of enum prog in bpf/record.h.
const (
	progNone = iota
	progOpen
	progPath
	progFD
	progCwd
	progWrite
	progArgs
	progSocket
	progMmap
	progClone
	progPacked
	progAIO
	progURing
	progIoctl
	progFamily
	progBPF
	progReceive
	progProcess
	progFcntl
	progRead
	progWait  // notes the end of a call that waits for other tasks: the task's next call began later
	progOwn   // makes no record
	progOther // makes a record of what has no line
	progIPC   // exchanges data with other tasks, and may wait for them
)

// noArg is NOARG of bpf/record.h.
const noArg = 7

// sysRow is how one system call is read. spec names the arguments that matter
// by a letter and their index: F file descriptor the call is about; d directory
// descriptor and p path, D and P the second pair; n another string; f flags, m
// mode, k neither, but, as f and m, part of what tells repeats apart. For socket
// calls p is a sockaddr, followed by its length, and P a msghdr. Behind l is no
// index but when a symbolic link that p ends in is followed: 1 always, 2 unless f
// has AT_SYMLINK_NOFOLLOW, 3 only if f has AT_SYMLINK_FOLLOW, 4 unless f has UMOUNT_NOFOLLOW.
// a is an argument that a handler fills in for the record; of the arguments that spec does not name, it has none.
// Of calls on a process (progProcess) F is its id, d a descriptor of it, p what only a call
// that changes something has, and l the first argument where F is the id of a process.
type sysRow struct {
	name string
	prog uint8
	kind schema.KernelKind
	hook HookID
	spec string
	// nr are its numbers on x86-64, in 32-bit programs there, and on arm64
	// (arch/x86/entry/syscalls/*.tbl and include/uapi/asm-generic/unistd.h). "-" is none. A
	// call that changed its width has two. 32-bit arm programs are not decoded, only counted.
	nr string
}

// sysRows is every system call that has a handler, by name. Those that an
// architecture lacks are left out there. The others are in modelGroups.
var sysRows = []sysRow{
	{"open", progOpen, schema.KindOpen, HookOpen, "p0f1m2", "2 5 -"},
	{"openat", progOpen, schema.KindOpen, HookOpen, "d0p1f2m3", "257 295 56"},
	// struct open_how is spread over 2 to 4
	{"openat2", progOpen, schema.KindOpen, HookOpen, "d0p1f2m3k4", "437 437 437"},
	{"creat", progOpen, schema.KindOpen, HookOpen, "p0m1", "85 8 -"},
	{"open_by_handle_at", progOpen, schema.KindOpen, HookOpen, "f2", "304 342 265"},

	{"execve", progPath, schema.KindExecFailed, HookExecFailed, "p0", "59 11 221"},
	{"execveat", progPath, schema.KindExecFailed, HookExecFailed, "d0p1f4", "322 358 281"},

	{"rename", progPath, schema.KindRename, HookRename, "p0P1", "82 38 -"},
	{"renameat", progPath, schema.KindRename, HookRename, "d0p1D2P3", "264 302 38"},
	{"renameat2", progPath, schema.KindRename, HookRename, "d0p1D2P3f4", "316 353 276"},
	{"unlink", progPath, schema.KindUnlink, HookUnlink, "p0", "87 10 -"},
	{"unlinkat", progPath, schema.KindUnlink, HookUnlink, "d0p1f2", "263 301 35"}, // schema.KindRmdir with AT_REMOVEDIR
	{"rmdir", progPath, schema.KindRmdir, HookUnlink, "p0", "84 40 -"},
	{"link", progPath, schema.KindLink, HookLink, "p0P1", "86 9 -"},
	{"linkat", progPath, schema.KindLink, HookLink, "d0p1D2P3f4l3", "265 303 37"},
	{"symlink", progPath, schema.KindSymlink, HookLink, "n0p1", "88 83 -"},
	{"symlinkat", progPath, schema.KindSymlink, HookLink, "n0d1p2", "266 304 36"},
	{"mkdir", progPath, schema.KindMkdir, HookMkdir, "p0m1", "83 39 -"},
	{"mkdirat", progPath, schema.KindMkdir, HookMkdir, "d0p1m2", "258 296 34"},
	{"mknod", progPath, schema.KindMknod, HookMkdir, "p0m1k2", "133 14 -"},
	{"mknodat", progPath, schema.KindMknod, HookMkdir, "d0p1m2k3", "259 297 33"},
	{"truncate", progPath, schema.KindTruncate, HookTruncate, "p0k1l1", "76 92 45"},
	{"ftruncate", progFD, schema.KindTruncate, HookTruncate, "F0k1", "77 93 46"},
	// 32-bit only: the length in halves
	{"truncate64", progPath, schema.KindTruncate, HookTruncate, "p0k1k2l1", "- 193 -"},
	{"ftruncate64", progFD, schema.KindTruncate, HookTruncate, "F0k1k2", "- 194 -"},
	{"fallocate", progFD, schema.KindTruncate, HookTruncate, "F0k1k2k3", "285 324 47"},

	{"chmod", progPath, schema.KindChmod, HookAttr, "p0m1l1", "90 15 -"},
	{"fchmod", progFD, schema.KindChmod, HookAttr, "F0m1", "91 94 52"},
	{"fchmodat", progPath, schema.KindChmod, HookAttr, "d0p1m2l1", "268 306 53"},
	{"fchmodat2", progPath, schema.KindChmod, HookAttr, "d0p1m2f3l2", "452 452 452"},
	{"chown", progPath, schema.KindChown, HookAttr, "p0k1k2l1", "92 182,212 -"},
	{"lchown", progPath, schema.KindChown, HookAttr, "p0k1k2", "94 16,198 -"},
	{"fchown", progFD, schema.KindChown, HookAttr, "F0k1k2", "93 95,207 55"},
	{"fchownat", progPath, schema.KindChown, HookAttr, "d0p1k2k3f4l2", "260 298 54"},
	{"setxattr", progPath, schema.KindSetxattr, HookAttr, "p0n1f4l1", "188 226 5"},
	{"lsetxattr", progPath, schema.KindSetxattr, HookAttr, "p0n1f4", "189 227 6"},
	{"fsetxattr", progFD, schema.KindSetxattr, HookAttr, "F0n1f4", "190 228 7"},
	{"setxattrat", progPath, schema.KindSetxattr, HookAttr, "d0p1f2n3l2", "463 463 463"},
	{"removexattr", progPath, schema.KindRemovexattr, HookAttr, "p0n1l1", "197 235 14"},
	{"lremovexattr", progPath, schema.KindRemovexattr, HookAttr, "p0n1", "198 236 15"},
	{"fremovexattr", progFD, schema.KindRemovexattr, HookAttr, "F0n1", "199 237 16"},
	{"removexattrat", progPath, schema.KindRemovexattr, HookAttr, "d0p1f2n3l2", "466 466 466"},

	{"utimensat", progPath, schema.KindUtime, HookAttr, "d0p1f3l2", "280 320,412 88"},
	{"utimes", progPath, schema.KindUtime, HookAttr, "p0l1", "235 271 -"},
	{"utime", progPath, schema.KindUtime, HookAttr, "p0l1", "132 30 -"},
	{"futimesat", progPath, schema.KindUtime, HookAttr, "d0p1l1", "261 299 -"},

	{"chdir", progCwd, schema.KindChdir, HookChdir, "p0", "80 12 49"},
	{"fchdir", progCwd, schema.KindChdir, HookChdir, "F0", "81 133 50"},
	{"chroot", progCwd, schema.KindChroot, HookChdir, "p0", "161 61 51"},

	{"write", progWrite, schema.KindWrite, HookWrite, "F0", "1 4 64"},
	{"pwrite64", progWrite, schema.KindWrite, HookWrite, "F0", "18 181 68"},
	{"writev", progWrite, schema.KindWrite, HookWrite, "F0", "20 146 66"},
	{"pwritev", progWrite, schema.KindWrite, HookWrite, "F0", "296 334 70"},
	{"pwritev2", progWrite, schema.KindWrite, HookWrite, "F0", "328 379 287"},
	{"sendfile", progWrite, schema.KindWrite, HookWrite, "F0d1", "40 187,239 71"},
	{"copy_file_range", progWrite, schema.KindWrite, HookWrite, "F2", "326 377 285"},
	{"splice", progWrite, schema.KindWrite, HookWrite, "d0F2", "275 313 76"},
	{"read", progRead, schema.KindForeignSocket, HookSocket, "F0", "0 3 63"},
	{"readv", progRead, schema.KindForeignSocket, HookSocket, "F0", "19 145 65"},
	{"preadv2", progRead, schema.KindForeignSocket, HookSocket, "F0", "327 378 286"},
	{"recvfrom", progRead, schema.KindForeignSocket, HookSocket, "F0", "45 371 207"},
	{"getsockopt", progRead, schema.KindForeignSocket, HookSocket, "F0k1k2", "55 365 209"}, // only what reads
	// These make no event, so their kind and hook are unused.
	{"wait4", progWait, 0, HookOpen, "", "61 7,114 260"}, // and the 32-bit waitpid
	{"waitid", progWait, 0, HookOpen, "", "247 284 95"},
	{"poll", progWait, 0, HookOpen, "", "7 168 -"},
	{"ppoll", progWait, 0, HookOpen, "", "271 309,414 73"},
	{"select", progWait, 0, HookOpen, "", "23 82,142 -"},
	{"pselect6", progWait, 0, HookOpen, "", "270 308,413 72"},
	{"epoll_wait", progWait, 0, HookOpen, "", "232 256 -"},
	{"epoll_pwait", progWait, 0, HookOpen, "", "281 319 22"},
	{"epoll_pwait2", progWait, 0, HookOpen, "", "441 441 441"},
	{"futex", progWait, 0, HookOpen, "", "202 240,422 98"},
	{"futex_waitv", progWait, 0, HookOpen, "", "449 449 449"},
	{"futex_wait", progWait, 0, HookOpen, "", "455 455 455"},
	{"nanosleep", progWait, 0, HookOpen, "", "35 162 101"},
	{"clock_nanosleep", progWait, 0, HookOpen, "", "230 267,407 115"},
	{"pause", progWait, 0, HookOpen, "", "34 29 -"},
	{"rt_sigtimedwait", progWait, 0, HookOpen, "", "128 177,421 137"},
	{"rt_sigsuspend", progWait, 0, HookOpen, "", "130 179 133"},
	{"ipc", progWait, 0, HookOpen, "", "- 117 -"},
	{"io_getevents", progWait, 0, HookOpen, "", "208 247 4"},
	{"io_pgetevents", progWait, 0, HookOpen, "", "333 385,416 292"},
	{"flock", progWait, 0, HookOpen, "", "73 143 32"},
	{"io_submit", progAIO, schema.KindWrite, HookWrite, "", "209 248 2"},
	{"mmap", progMmap, schema.KindMmapShared, HookMmap, "a0F4m2f3", "9 192 222"},

	{"connect", progSocket, schema.KindConnect, HookSocket, "F0p1", "42 362 203"},
	{"bind", progSocket, schema.KindBind, HookSocket, "F0p1", "49 361 200"},
	{"listen", progSocket, schema.KindListen, HookSocket, "F0", "50 363 201"},
	{"accept", progSocket, schema.KindAccept, HookSocket, "F0", "43 - 202"},
	{"accept4", progSocket, schema.KindAccept, HookSocket, "F0", "288 364 242"},
	{"sendto", progSocket, schema.KindSendto, HookSocket, "F0f3p4a4", "44 369 206"},
	{"sendmsg", progSocket, schema.KindSendto, HookSocket, "F0P1f2a4", "46 370 211"},
	{"recvmsg", progReceive, schema.KindSendto, HookSocket, "F0P1", "47 372 212"},   // only for the descriptors
	{"recvmmsg", progReceive, schema.KindSendto, HookSocket, "", "299 337,417 243"}, // that come with a message
	{"sendmmsg", progSocket, schema.KindSendto, HookSocket, "F0f3a4", "307 345 269"},

	// Of 32-bit programs only: the arguments are in user memory.
	{"socketcall", progPacked, schema.KindCompatSyscall, HookSocket, "k0", "- 102 -"},
	{"old_mmap", progPacked, schema.KindCompatSyscall, HookMmap, "", "- 90 -"},

	{"setuid", progArgs, schema.KindSetID, HookPrivilege, "k0", "105 23,213 146"},
	{"setgid", progArgs, schema.KindSetID, HookPrivilege, "k0", "106 46,214 144"},
	{"setreuid", progArgs, schema.KindSetID, HookPrivilege, "k0k1", "113 70,203 145"},
	{"setregid", progArgs, schema.KindSetID, HookPrivilege, "k0k1", "114 71,204 143"},
	{"setresuid", progArgs, schema.KindSetID, HookPrivilege, "k0k1k2", "117 164,208 147"},
	{"setresgid", progArgs, schema.KindSetID, HookPrivilege, "k0k1k2", "119 170,210 149"},
	{"setfsuid", progArgs, schema.KindSetID, HookPrivilege, "k0", "122 138,215 151"},
	{"setfsgid", progArgs, schema.KindSetID, HookPrivilege, "k0", "123 139,216 152"},
	{"setgroups", progArgs, schema.KindSetID, HookPrivilege, "k0", "116 81,206 159"},
	{"capset", progArgs, schema.KindCapset, HookPrivilege, "", "126 185 91"},
	{"ptrace", progProcess, schema.KindPtrace, HookPrivilege, "k0F1k1", "101 26 117"},
	{"process_vm_readv", progProcess, schema.KindPtrace, HookPrivilege, "F0k0", "310 347 270"},
	{"process_vm_writev", progProcess, schema.KindPtrace, HookPrivilege, "F0k0", "311 348 271"},
	{"pidfd_getfd", progProcess, schema.KindPtrace, HookPrivilege, "d0k0k1", "438 438 438"},
	{"mount", progPath, schema.KindMount, HookPrivilege, "n0p1a2f3l1", "165 21 40"},
	{"umount", progPath, schema.KindMount, HookPrivilege, "p0l1", "- 22 -"}, // 32-bit only
	{"umount2", progPath, schema.KindMount, HookPrivilege, "p0f1l4", "166 52 39"},
	{"pivot_root", progPath, schema.KindMount, HookPrivilege, "p0P1", "155 217 41"},
	{"open_tree", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2", "428 428 428"},
	{"open_tree_attr", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2", "467 467 467"},
	{"move_mount", progPath, schema.KindMount, HookPrivilege, "d0p1D2P3f4", "429 429 429"},
	{"mount_setattr", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2", "442 442 442"},
	{"fspick", progPath, schema.KindMount, HookPrivilege, "d0p1f2", "433 433 433"},
	{"fsopen", progPath, schema.KindMount, HookPrivilege, "n0f1", "430 430 430"},
	{"fsconfig", progArgs, schema.KindMount, HookPrivilege, "k0k1", "431 431 431"},
	{"fsmount", progArgs, schema.KindMount, HookPrivilege, "k0f1", "432 432 432"},
	{"sethostname", progArgs, schema.KindPrivileged, HookPrivilege, "k1", "170 74 161"},
	{"setdomainname", progArgs, schema.KindPrivileged, HookPrivilege, "k1", "171 121 162"},
	{"swapon", progPath, schema.KindPrivileged, HookPrivilege, "p0f1l1", "167 87 224"},
	{"swapoff", progPath, schema.KindPrivileged, HookPrivilege, "p0l1", "168 115 225"},
	{"acct", progPath, schema.KindPrivileged, HookPrivilege, "p0l1", "163 51 89"},
	{"quotactl", progPath, schema.KindPrivileged, HookPrivilege, "k0p1k2", "179 131 60"},
	{"quotactl_fd", progFD, schema.KindPrivileged, HookPrivilege, "F0k1k2", "443 443 443"},
	{"kcmp", progArgs, schema.KindPrivileged, HookPrivilege, "k0k1k2", "312 349 272"},
	{"process_madvise", progProcess, schema.KindPrivileged, HookPrivilege, "d0k0k3", "440 440 440"},
	{"process_mrelease", progProcess, schema.KindPrivileged, HookPrivilege, "d0k0", "448 448 448"},
	{"prlimit64", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0k1p2", "302 340 261"},
	{"sched_setparam", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0", "142 154 118"},
	{"sched_setscheduler", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0k1", "144 156 119"},
	{"sched_setaffinity", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0", "203 241 122"},
	{"sched_setattr", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0", "314 351 274"},
	{"setpriority", progProcess, schema.KindPrivileged, HookPrivilege, "k0F1k1k2l0", "141 97 140"},
	{"ioprio_set", progProcess, schema.KindPrivileged, HookPrivilege, "k0F1k1k2l1", "251 289 30"},
	{"migrate_pages", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0", "256 294 238"},
	{"move_pages", progProcess, schema.KindPrivileged, HookPrivilege, "F0k0", "279 317 239"},
	// Of these, only what operationTables has as recorded.
	{"fcntl", progFcntl, schema.KindPrivileged, HookPrivilege, "k0k1k2", "72 55,221 25"},
	{"clock_adjtime", progArgs, schema.KindPrivileged, HookPrivilege, "k0", "305 343,405 266"},
	{"adjtimex", progArgs, schema.KindPrivileged, HookPrivilege, "", "159 124 171"},
	{"perf_event_open", progArgs, schema.KindPrivileged, HookPrivilege, "k1k2k3f4", "298 336 241"},
	{"add_key", progPath, schema.KindPrivileged, HookPrivilege, "n0k4", "248 286 217"},
	{"request_key", progPath, schema.KindPrivileged, HookPrivilege, "n0k3", "249 287 218"},
	{"keyctl", progArgs, schema.KindPrivileged, HookPrivilege, "k0k1", "250 288 219"},
	{"inotify_add_watch", progPath, schema.KindPrivileged, HookPrivilege, "k0p1k2", "254 292 27"},
	{"fanotify_init", progArgs, schema.KindPrivileged, HookPrivilege, "f0k1", "300 338 262"},
	{"fanotify_mark", progPath, schema.KindPrivileged, HookPrivilege, "k0f1k2d3p4", "301 339 263"},
	{"seccomp", progArgs, schema.KindPrivileged, HookPrivilege, "k0f1", "317 354 277"},
	{"prctl", progArgs, schema.KindPrivileged, HookPrivilege, "k0k1", "157 172 167"},
	{"ioctl", progIoctl, schema.KindPrivileged, HookPrivilege, "F0k1", "16 54 29"},
	{"reboot", progArgs, schema.KindPrivileged, HookPrivilege, "k2", "169 88 142"},
	{"kexec_load", progArgs, schema.KindPrivileged, HookPrivilege, "k0", "246 283 104"},
	{"kexec_file_load", progFD, schema.KindPrivileged, HookPrivilege, "F0k1f4", "320 - 294"},
	{"vhangup", progArgs, schema.KindPrivileged, HookPrivilege, "", "153 111 58"},
	{"iopl", progArgs, schema.KindPrivileged, HookPrivilege, "k0", "172 110 -"},
	{"ioperm", progArgs, schema.KindPrivileged, HookPrivilege, "k0k1k2", "173 101 -"},
	{"settimeofday", progArgs, schema.KindPrivileged, HookPrivilege, "", "164 79 170"},
	{"clock_settime", progArgs, schema.KindPrivileged, HookPrivilege, "k0", "227 264,404 112"},
	{"stime", progArgs, schema.KindPrivileged, HookPrivilege, "", "- 25 -"},
	{"socket", progFamily, schema.KindSocket, HookSocket, "k0k1k2", "41 359 198"},
	{"shmget", progIPC, schema.KindIPC, HookPrivilege, "k0k1k2", "29 395 194"},
	{"shmat", progIPC, schema.KindIPC, HookPrivilege, "k0k2", "30 397 196"},
	{"shmctl", progIPC, schema.KindIPC, HookPrivilege, "k0k1", "31 396 195"},
	{"semget", progIPC, schema.KindIPC, HookPrivilege, "k0k1k2", "64 393 190"},
	{"semctl", progIPC, schema.KindIPC, HookPrivilege, "k0k2", "66 394 191"},
	{"semop", progIPC, schema.KindIPC, HookPrivilege, "k0", "65 - 193"},
	{"semtimedop", progIPC, schema.KindIPC, HookPrivilege, "k0", "220 420 192"},
	{"msgget", progIPC, schema.KindIPC, HookPrivilege, "k0k1", "68 399 186"},
	{"msgctl", progIPC, schema.KindIPC, HookPrivilege, "k0k1", "71 402 187"},
	{"msgsnd", progIPC, schema.KindIPC, HookPrivilege, "k0", "69 400 189"},
	{"msgrcv", progIPC, schema.KindIPC, HookPrivilege, "k0", "70 401 188"},
	{"mq_open", progOpen, schema.KindIPC, HookPrivilege, "n0f1", "240 277 180"},
	{"mq_unlink", progPath, schema.KindIPC, HookPrivilege, "n0", "241 278 181"},
	{"mq_timedsend", progIPC, schema.KindIPC, HookPrivilege, "F0", "242 279,418 182"},
	{"mq_timedreceive", progIPC, schema.KindIPC, HookPrivilege, "F0", "243 280,419 183"},
	{"clone", progClone, schema.KindNamespace, HookPrivilege, "f0", "56 120 220"},
	{"clone3", progClone, schema.KindNamespace, HookPrivilege, "f0", "435 435 435"},
	{"unshare", progArgs, schema.KindNamespace, HookPrivilege, "f0", "272 310 97"},
	{"setns", progArgs, schema.KindNamespace, HookPrivilege, "k0f1", "308 346 268"},
	{"bpf", progBPF, schema.KindBPF, HookPrivilege, "k0a1", "321 357 280"},
	{"memfd_create", progPath, schema.KindMemfd, HookPrivilege, "n0f1", "319 356 279"},
	{"init_module", progArgs, schema.KindModule, HookPrivilege, "k1", "175 128 105"},
	{"finit_module", progFD, schema.KindModule, HookPrivilege, "F0f2", "313 350 273"},
	{"delete_module", progPath, schema.KindModule, HookPrivilege, "n0f1", "176 129 106"},
	// only for what it leaves behind
	{"io_uring_enter", progURing, schema.KindIOUring, HookPrivilege, "", "426 426 426"},
	{"io_uring_setup", progArgs, schema.KindIOUring, HookPrivilege, "k0", "425 425 425"},
}

// sysCall is one entry of the table the programs read (struct syscall), and
// where the decoder finds flags and mode.
type sysCall struct {
	name                                 string
	prog, kind, hook                     uint8
	fd, dfd, path, dfd2, path2, str, key uint8
	flagsArg, modeArg, follow            uint8
	numbers                              uint8 // bit mask of arguments that are no addresses
	account                              Account
	table                                uint8 // of operations, see operationTables
	recorded                             uint8 // bit mask of those that a record has
}

// sysTable maps the numbers of one instruction set to calls.
type sysTable [512]*sysCall

// sysTables returns the native table and that of 32-bit programs, which is
// empty where none is decoded.
var sysTables = sync.OnceValues(func() (*sysTable, *sysTable) {
	calls := modelCalls()
	byName := make(map[string]*sysCall, len(calls))
	for name, c := range calls {
		r := &sysCall{name: name, prog: progOther}
		switch {
		case c.row != nil:
			r = c.row.parse()
		case c.account != AccountOpen && c.table == 0:
			r.prog = progOwn
		}
		r.account, r.table = c.account, c.table
		byName[name] = r
	}
	native, known := nativeColumn[runtime.GOARCH]
	fill := func(column int) *sysTable {
		t := new(sysTable)
		for name, c := range calls {
			for _, nr := range c.numbers(column) {
				t[nr] = byName[name]
			}
		}
		return t
	}
	switch {
	case !known:
		return new(sysTable), new(sysTable)
	case runtime.GOARCH == "amd64":
		return fill(native), fill(1)
	}
	return fill(native), new(sysTable)
})

// nativeColumn is the column of a program's own calls, by its instruction set.
var nativeColumn = map[string]int{"amd64": 0, "arm64": 2}

// numbers are those of the call in a column of nr.
func (r sysRow) numbers(column int) (list []int) {
	for s := range strings.SplitSeq(strings.Fields(r.nr)[column], ",") {
		if n, err := strconv.Atoi(s); err == nil {
			list = append(list, n)
		}
	}
	return list
}

func (r sysRow) parse() *sysCall {
	c := &sysCall{
		name: r.name, prog: r.prog, kind: uint8(r.kind), hook: uint8(r.hook),
		fd: noArg, dfd: noArg, path: noArg, dfd2: noArg, path2: noArg, str: noArg, flagsArg: noArg, modeArg: noArg,
	}
	for i := 0; i+1 < len(r.spec); i += 2 {
		n := r.spec[i+1] - '0'
		if r.spec[i] != 'l' {
			c.recorded |= 1 << n
		}
		if !strings.ContainsRune("pPnla", rune(r.spec[i])) {
			c.numbers |= 1 << n
		}
		switch r.spec[i] {
		case 'F':
			c.fd = n
		case 'd':
			c.dfd = n
		case 'p':
			c.path = n
		case 'D':
			c.dfd2 = n
		case 'P':
			c.path2 = n
		case 'n':
			c.str = n
		case 'f':
			c.flagsArg = n
			c.key |= 1 << n
		case 'm':
			c.modeArg = n
			c.key |= 1 << n
		case 'k':
			c.key |= 1 << n
		case 'l':
			c.follow = n
		case 'a':
		default:
			panic(fmt.Sprintf("kernel: system call %s: bad spec %q", r.name, r.spec))
		}
	}
	return c
}

func (t *sysTable) calls() map[uint32]*Call {
	calls := make(map[uint32]*Call)
	for nr, row := range t {
		if row == nil {
			continue
		}
		switch row.prog {
		case progOpen, progPath, progFD, progCwd, progArgs, progSocket, progPacked, progClone, progFamily, progBPF,
			progIoctl:
		case progProcess:
			if row.kind == uint8(schema.KindPrivileged) { // most are about the caller itself
				continue
			}
			calls[uint32(nr)] = &Call{
				Name: row.name, Kind: schema.KernelKind(row.kind), Hook: HookID(row.hook),
				FD: noArg, Dirfd: noArg, Path: noArg, Dirfd2: noArg, Path2: noArg, Text: noArg, row: row,
			}
			continue
		default:
			continue
		}
		switch row.name {
		case "old_mmap", "accept", "accept4", "mq_open", "mq_unlink":
			continue
		}
		calls[uint32(nr)] = &Call{
			Name: row.name, Kind: schema.KernelKind(row.kind), Hook: HookID(row.hook),
			FD: row.fd, Dirfd: row.dfd, Path: row.path, Dirfd2: row.dfd2, Path2: row.path2, Text: row.str, row: row,
		}
	}
	return calls
}

// NoArg stands for an argument that a Call does not have.
const NoArg = noArg

// Call is a system call as an observer reads its arguments. The fields after
// Hook are indexes of arguments, or NoArg.
type Call struct {
	Name string
	Kind schema.KernelKind
	Hook HookID
	// FD is the descriptor that the call is about. Dirfd and Path, Dirfd2 and Path2
	// are a directory and a name relative to it. Text is another string. Of calls
	// about sockets, Path is an address with its length in the next argument, and
	// Path2 a msghdr.
	FD, Dirfd, Path, Dirfd2, Path2, Text uint8

	row *sysCall
}

// Arguments sets the fields of e that are numbers in the call's arguments. compat
// is a call of a 32-bit program.
func (c *Call) Arguments(e *Event, args [6]uint64, compat bool) { e.arguments(c.row, args, compat) }

// Calls are the system calls that tell what they do before they are made, by
// number: those of this machine's own instruction set, and those of its 32-bit
// programs. Left out are calls whose result matters most, such as writes.
func Calls() (native, compat map[uint32]*Call) {
	n, c := sysTables()
	return n.calls(), c.calls()
}
