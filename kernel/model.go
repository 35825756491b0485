package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Account is what is known of a system call, or of one of its operations.
type Account uint8

// Accounts. A call that the table lacks is AccountOpen for every claim.
const (
	AccountUnlisted Account = iota
	// AccountOwn: it changes nothing that a claim is about, and nothing leaves the calling process.
	AccountOwn
	// AccountRecorded: what it does is a line of the layer.
	AccountRecorded
	// AccountOpen: it can do what no line tells.
	AccountOpen
)

var accountNames = [...]string{
	AccountUnlisted: "open", AccountOwn: "own", AccountRecorded: "recorded", AccountOpen: "open",
}

// String is the word of the table.
func (a Account) String() string { return accountNames[a] }

// ModelRow is a row of the table of all system calls. Operation is empty where the call has one account only, and
// "other" for every operation that has no row.
type ModelRow struct {
	Call, Operation string
	// X86, IA32 and ARM64 are its numbers, "-" for none.
	X86, IA32, ARM64 string
	Account          Account
	// FailedToo says that a call that fails can have acted as well.
	FailedToo bool
	// Claims are what is open after it, as subjects of claims: schema.SubjectPrograms and the like.
	Claims []string
	// Why says in one sentence what it does, or why it is Own.
	Why string
}

// everything is what an unknown act opens.
var everything = schema.Subjects

var (
	opensHosts     = []string{schema.SubjectHosts}
	opensFiles     = []string{schema.SubjectFiles}
	opensPrograms  = []string{schema.SubjectPrograms}
	opensPrivilege = []string{schema.SubjectPrivilege}
)

// Reasons why a call is Own.
const (
	reads       = "it gives the caller what is there"
	asks        = "it tells the caller of itself or of the host"
	memory      = "it changes the caller's address space; writable mappings of files are recorded"
	descriptors = "it makes, changes or ends descriptors of the caller's; opening files and reaching peers are recorded"
	settings    = "it changes how the kernel treats the caller, its threads or its children"
	waits       = "it waits for others, or wakes those that wait for the caller"
	locks       = "it locks a file that the caller has open; contents, name and attributes stay"
	storage     = "it writes to the device what was written before"
	gone        = "no kernel that is supported has it"
	terminal    = "it sets how a terminal behaves that the caller has open"
	opened      = "it changes the contents of a file that the caller has opened for writing, which is recorded"
	receives    = "it says how a socket receives and sends; with whom stays the same"
)

// changesAttributes is what chattr does.
const changesAttributes = "it changes attributes of a file that no line tells of, such as whether it can be changed"

// Reasons why a call is Recorded.
const (
	asLine = "a line tells what it did"
	byHook = "another hook tells of it: forks, exits and signals"
)

// modelGroup is rows of one account: names, with their numbers as in sysRow.nr, separated by semicolons.
type modelGroup struct {
	account Account
	claims  []string
	why     string
	rows    string
}

// modelGroups are the calls without a row in sysRows, which are Recorded.
var modelGroups = []modelGroup{
	{AccountOwn, nil, reads, `
		stat 4 106 -; fstat 5 108 80; lstat 6 107 -; newfstatat 262 - 79; statx 332 383 291; statfs 137 99 43;
		fstatfs 138 100 44; ustat 136 62 -; sysfs 139 135 -; access 21 33 -; faccessat 269 307 48;
		faccessat2 439 439 439; readlink 89 85 -; readlinkat 267 305 78; getdents 78 141 -; getdents64 217 220 61;
		getcwd 79 183 17; lseek 8 19 62; pread64 17 180 67; preadv 295 333 69; readahead 187 225 213;
		fadvise64 221 250 223; cachestat 451 451 451; getxattr 191 229 8; lgetxattr 192 230 9; fgetxattr 193 231 10;
		listxattr 194 232 11; llistxattr 195 233 12; flistxattr 196 234 13; getxattrat 464 464 464;
		listxattrat 465 465 465; name_to_handle_at 303 341 264; statmount 457 457 457; listmount 458 458 458;
		listns 470 470 470; file_getattr 468 468 468; oldstat - 18 -; oldfstat - 28 -; oldlstat - 84 -; readdir - 89 -;
		_llseek - 140 -; stat64 - 195 -; lstat64 - 196 -; fstat64 - 197 -; fstatat64 - 300 -; statfs64 - 268 -;
		fstatfs64 - 269 -; fadvise64_64 - 272 -`},
	{AccountOwn, nil, asks, `
		getpid 39 20 172; getppid 110 64 173; gettid 186 224 178; getpgrp 111 65 -; getpgid 121 132 155;
		getsid 124 147 156; getuid 102 24 174; geteuid 107 49 175; getgid 104 47 176; getegid 108 50 177;
		getresuid 118 165 148; getresgid 120 171 150; getgroups 115 80 158; getuid32 - 199 -; getgid32 - 200 -;
		geteuid32 - 201 -; getegid32 - 202 -; getgroups32 - 205 -; getresuid32 - 209 -; getresgid32 - 211 -;
		uname 63 122 160; olduname - 109 -; oldolduname - 59 -; getrlimit 97 76 163; ugetrlimit - 191 -;
		getrusage 98 77 165; sysinfo 99 116 179; times 100 43 153; time 201 13 -; gettimeofday 96 78 169;
		clock_gettime 228 265 113; clock_getres 229 266 114; clock_gettime64 - 403 -; clock_getres_time64 - 406 -;
		getitimer 36 105 102; timer_gettime 224 261 108; timer_getoverrun 225 262 109; timer_gettime64 - 408 -;
		timerfd_gettime 287 326 87; timerfd_gettime64 - 410 -; getpriority 140 96 141; ioprio_get 252 290 31;
		sched_getparam 143 155 121; sched_getscheduler 145 157 120; sched_get_priority_max 146 159 125;
		sched_get_priority_min 147 160 126; sched_rr_get_interval 148 161 127; sched_rr_get_interval_time64 - 423 -;
		sched_getaffinity 204 242 123; sched_getattr 315 352 275; capget 125 184 90; getcpu 309 318 168;
		getrandom 318 355 278; get_robust_list 274 312 100; get_thread_area 211 244 -; get_mempolicy 239 275 236;
		mincore 27 218 232; rt_sigpending 127 176 136; sigpending - 73 -; sgetmask - 68 -; getsockname 51 367 204;
		getpeername 52 368 205; lsm_get_self_attr 459 459 459; lsm_list_modules 461 461 461`},
	{AccountOwn, nil, memory, `
		mprotect 10 125 226; munmap 11 91 215; brk 12 45 214; mremap 25 163 216; msync 26 144 227; madvise 28 219 233;
		mlock 149 150 228; mlock2 325 376 284; munlock 150 151 229; mlockall 151 152 230; munlockall 152 153 231;
		remap_file_pages 216 257 234; pkey_mprotect 329 380 288; pkey_alloc 330 381 289; pkey_free 331 382 290;
		mseal 462 462 462; map_shadow_stack 453 453 453; membarrier 324 375 283; mbind 237 274 235;
		set_mempolicy 238 276 237; set_mempolicy_home_node 450 450 450; userfaultfd 323 374 282; shmdt 67 398 197;
		modify_ldt 154 123 -; arch_prctl 158 384 -; set_thread_area 205 243 -`},
	{AccountOwn, nil, descriptors, `
		close 3 6 57; close_range 436 436 436; dup 32 41 23; dup2 33 63 -; dup3 292 330 24; pipe 22 42 -;
		pipe2 293 331 59; eventfd 284 323 -; eventfd2 290 328 19; signalfd 282 321 -; signalfd4 289 327 74;
		epoll_create 213 254 -; epoll_create1 291 329 20; epoll_ctl 233 255 21; timerfd_create 283 322 85;
		timerfd_settime 286 325 86; timerfd_settime64 - 411 -; inotify_init 253 291 -; inotify_init1 294 332 26;
		inotify_rm_watch 255 293 28; memfd_secret 447 447 447; pidfd_open 434 434 434; tee 276 315 77;
		vmsplice 278 316 75; socketpair 53 360 199; shutdown 48 373 210; io_setup 206 245 0; io_destroy 207 246 1;
		io_cancel 210 249 3; mq_notify 244 281 184; mq_getsetattr 245 282 185`},
	{AccountOwn, nil, settings, `
		rt_sigaction 13 174 134; rt_sigprocmask 14 175 135; rt_sigreturn 15 173 139; sigaltstack 131 186 132;
		sigaction - 67 -; signal - 48 -; ssetmask - 69 -; sigprocmask - 126 -; sigsuspend - 72 -; sigreturn - 119 -;
		alarm 37 27 -; setitimer 38 104 103; timer_create 222 259 107; timer_settime 223 260 110;
		timer_settime64 - 409 -; timer_delete 226 263 111; umask 95 60 166; setrlimit 160 75 164; setpgid 109 57 154;
		setsid 112 66 157; nice - 34 -; set_tid_address 218 258 96; set_robust_list 273 311 99; rseq 334 386 293;
		rseq_slice_yield 471 471 471; landlock_create_ruleset 444 444 444; landlock_add_rule 445 445 445;
		landlock_restrict_self 446 446 446; lsm_set_self_attr 460 460 460; uretprobe 335 - -; uprobe 336 - -`},
	{AccountOwn, nil, waits, `
		sched_yield 24 158 124; restart_syscall 219 0 128; futex_wake 454 454 454; futex_requeue 456 456 456`},
	{AccountOwn, nil, storage, `
		sync 162 36 81; fsync 74 118 82; fdatasync 75 148 83; syncfs 306 344 267; sync_file_range 277 314 84`},
	{AccountOwn, nil, gone, `
		_sysctl 156 149 -; create_module 174 127 -; get_kernel_syms 177 130 -; query_module 178 167 -;
		nfsservctl 180 169 42; getpmsg 181 188 -; putpmsg 182 189 -; afs_syscall 183 137 -; tuxcall 184 - -;
		security 185 - -; lookup_dcookie 212 253 18; epoll_ctl_old 214 - -; epoll_wait_old 215 - -; vserver 236 273 -;
		break - 17 -; stty - 31 -; gtty - 32 -; ftime - 35 -; prof - 44 -; lock - 53 -; mpx - 56 -; ulimit - 58 -;
		profil - 98 -; idle - 112 -; vm86old - 113 -; vm86 - 166 -; bdflush - 134 -; uselib 134 86 -`},
	{AccountRecorded, nil, byHook, `
		fork 57 2 -; vfork 58 190 -; exit 60 1 93; exit_group 231 252 94; kill 62 37 129; tkill 200 238 130;
		tgkill 234 270 131; rt_sigqueueinfo 129 178 138; rt_tgsigqueueinfo 297 335 240; pidfd_send_signal 424 424 424`},
	{AccountOpen, opensFiles, changesAttributes, `
		file_setattr 469 469 469`},
}

// operated are the calls without a row in sysRows that do many things; modelOperations says which.
const operated = `
		setsockopt 54 366 208; io_uring_register 427 427 427; syslog 103 103 116; personality 135 136 92`

// modelOverrides are the rows of sysRows that are not only Recorded.
var modelOverrides = map[string]modelGroup{
	"ipc":   {account: AccountOpen, claims: opensHosts, why: "it exchanges data with others by System V objects"},
	"flock": {account: AccountOwn, why: locks},
	// A line tells of these, but not of what the kernel does then.
	"acct":         {AccountRecorded, opensFiles, "the kernel writes to the file whenever a process ends", ""},
	"swapon":       {AccountRecorded, opensFiles, "the kernel writes memory to the file", ""},
	"quotactl":     {AccountRecorded, opensFiles, "the kernel writes to files of quotas", ""},
	"quotactl_fd":  {AccountRecorded, opensFiles, "the kernel writes to files of quotas", ""},
	"keyctl":       {AccountRecorded, opensPrograms, "it reaches keys of others, for which programs outside act", ""},
	"kexec_load":   {AccountRecorded, everything, "it can start another kernel", ""},
	"init_module":  {AccountRecorded, everything, "it puts code into the kernel", ""},
	"finit_module": {AccountRecorded, everything, "it puts code into the kernel", ""},
	"bpf":          {AccountRecorded, everything, "it can put programs into the kernel, or reach others'", ""},

	"perf_event_open": {AccountRecorded, opensPrivilege, "it observes others, or puts probes into the kernel", ""},
	"kexec_file_load": {AccountRecorded, everything, "it can start another kernel", ""},
	"iopl":            {AccountRecorded, everything, "it lets the caller do what devices do", ""},
	"ioperm":          {AccountRecorded, everything, "it lets the caller do what devices do", ""},
	"reboot":          {AccountRecorded, everything, "it stops the machine, or changes how that happens", ""},
}

// modelFailing are the calls by which a failed attempt can have acted.
var modelFailing = []string{"init_module", "finit_module", "execve", "execveat", "mount", "keyctl", "request_key"}

// modelCall is a call of the table.
type modelCall struct {
	name, nr string
	account  Account
	claims   []string
	why      string
	table    uint8 // of operations, 0 for none
	row      *sysRow
}

// numbers are those of the call in a column of nr.
func (c *modelCall) numbers(column int) []int { return sysRow{nr: c.nr}.numbers(column) }

// modelCalls are all system calls, by name.
var modelCalls = sync.OnceValue(func() map[string]*modelCall {
	calls := make(map[string]*modelCall)
	for i := range sysRows {
		r := &sysRows[i]
		c := &modelCall{name: r.name, nr: r.nr, account: AccountRecorded, why: asLine, row: r}
		if r.prog == progWait {
			c.account, c.why = AccountOwn, waits
		}
		if g, ok := modelOverrides[r.name]; ok {
			c.account, c.claims, c.why = g.account, g.claims, g.why
		}
		calls[c.name] = c
	}
	add := func(rows string, c modelCall) {
		for row := range strings.SplitSeq(rows, ";") {
			if f := strings.Fields(row); len(f) == 4 && calls[f[0]] == nil { // what has a handler is recorded
				c.name, c.nr = f[0], strings.Join(f[1:], " ")
				calls[c.name] = new(c)
			}
		}
	}
	for _, g := range modelGroups {
		add(g.rows, modelCall{account: g.account, claims: g.claims, why: g.why})
	}
	add(operated, modelCall{account: AccountUnlisted})
	for i, t := range operationTables {
		if c := calls[t.call]; c != nil {
			c.table = uint8(i) + 1
		}
	}
	return calls
})

// Model is the table of all system calls and of the operations of those that do many things, by name.
var Model = sync.OnceValue(func() (rows []ModelRow) {
	operations := func(row ModelRow, t *operationTable) {
		for _, g := range t.groups {
			row.Account, row.Claims, row.Why = g.account, g.claims, g.why
			for _, op := range g.operations() {
				row.Operation = op.name
				rows = append(rows, row)
			}
		}
		row.Operation, row.Account = "other", AccountOpen
		row.Claims, row.Why = t.rest()
		rows = append(rows, row)
	}
	calls := modelCalls()
	for _, c := range calls {
		nr := strings.Fields(c.nr)
		row := ModelRow{Call: c.name, X86: nr[0], IA32: nr[1], ARM64: nr[2], Account: c.account, Claims: c.claims,
			Why: c.why, FailedToo: slices.Contains(modelFailing, c.name)}
		if c.table == 0 {
			rows = append(rows, row)
			continue
		}
		operations(row, &operationTables[c.table-1])
	}
	none := ModelRow{X86: "-", IA32: "-", ARM64: "-"}
	for i := range operationTables {
		if row := none; calls[operationTables[i].call] == nil {
			row.Call = operationTables[i].call
			operations(row, &operationTables[i])
		}
	}
	for i, op := range uringOps {
		row := none
		row.Call, row.Operation, row.Account, row.Claims, row.Why = "io_uring", op.name, op.account(), nil, op.why()
		if row.Account == AccountOpen {
			row.Claims = everything
		}
		row.X86, row.ARM64 = strconv.Itoa(i), strconv.Itoa(i)
		rows = append(rows, row)
	}
	names := func(call string, groups []placeGroup) {
		row := none
		row.Call = call
		for _, g := range groups {
			row.Account, row.Claims, row.Why = g.account, g.claims, g.why
			for name := range strings.FieldsSeq(g.names) {
				row.Operation = name
				rows = append(rows, row)
			}
		}
	}
	names("open to write", append(placeGroups, otherPlaces))
	names("file system", append(filesystems, remoteFilesystems))
	slices.SortFunc(rows, func(a, b ModelRow) int {
		return strings.Compare(a.Call+" "+a.Operation, b.Call+" "+b.Operation)
	})
	return rows
})

const unknownWhy = "it is not known what it does"

// ModelDigest tells the table of this build from others.
var ModelDigest = sync.OnceValue(func() string {
	h := sha256.New()
	for _, r := range Model() {
		fmt.Fprintf(h, "%q\n", []string{r.Call, r.Operation, r.X86, r.IA32, r.ARM64, r.Account.String(),
			strconv.FormatBool(r.FailedToo), strings.Join(r.Claims, " ")})
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
})

// Opening is a call after which claims are open, because it can have done what no line tells.
type Opening struct {
	Call, Operation string // Operation is empty for a call that does one thing
	Claims          []string
	Why             string
	// Undecoded says that the table lacks the call, so that nothing of it is known.
	Undecoded bool
}

// HonestOpen is an act that opens claims although honest programs do it.
type HonestOpen struct {
	Call, Operation string // Operation is the beginning of its name; empty: whatever it is
	Why             string // which program does it, and why
}

// HonestOpens are all of them. Everything else that opens a claim is unusual.
func HonestOpens() (list []HonestOpen) {
	const network = "Podman makes a network for a container"
	list = []HonestOpen{
		{"ioctl", "SIOCETHTOOL", "Chromium as root asks for an interface's driver, in memory that its threads share"},
		{"keyctl", "", "runc and crun give a container keys of its own"},
		{"netlink", "AUDIT_USER_message", "sshd, sudo and login write to the audit log"},
		{"netlink", "NFT_", network}, {"netlink", "RTM_", network}, {"socket", "family 16, protocol 12", network},
		{"open", "/proc/sys/net/", network}, {"write", "/proc/sys/net/", network},
		{"flow", "[ff02::", network + ", in which the kernel looks for routers"},
		{"packet", "options", network + ", in which the kernel looks for routers"},
		{"personality", "", "setarch, debuggers and sanitizers turn off address randomization"},
	}
	for _, kind := range []string{"cgroup", "devpts", "mqueue", "overlay", "proc", "sysfs", "tmpfs"} {
		list = append(list, HonestOpen{"mount", kind, "Podman and runc name it in memory that their threads share"})
	}
	return list
}

// Unusual reports whether no honest program is known to do this.
func (o *Opening) Unusual() bool {
	for _, h := range HonestOpens() {
		if h.Call == o.Call && strings.HasPrefix(o.Operation, h.Operation) {
			return false
		}
	}
	return true
}

// Opens returns what the event opens; ok is false if that is nothing.
func (e *Event) Opens() (o Opening, ok bool) {
	if e.Kind == KindUnmodelled {
		return e.opening, true
	}
	if e.Attempted || e.Errno != 0 && !slices.Contains(modelFailing, e.Syscall) {
		return Opening{}, false
	}
	switch e.Kind {
	case schema.KindPrivileged, schema.KindBPF, schema.KindModule:
		c := modelCalls()[e.Syscall]
		if c == nil || len(c.claims) == 0 {
			return Opening{}, false
		}
		return Opening{Call: e.Syscall, Claims: c.claims, Why: c.why}, true
	case schema.KindMount:
		return e.mountOpens()
	case schema.KindSocket:
		if !e.Carrier() {
			return Opening{}, false
		}
		return Opening{Call: "socket", Operation: fmt.Sprintf("family %d, protocol %d", uint32(e.Arg(0)),
			uint32(e.Arg(2))), Claims: opensHosts, Why: "no line names the peers of such a socket"}, true
	case schema.KindOpen, schema.KindWrite:
		return e.placeOpens()
	case schema.KindIOUringOp:
		return Opening{Call: "io_uring", Operation: OperationName(uint8(e.Arg(0))), Claims: everything,
			Why: unknownWhy}, true
	}
	return Opening{}, false
}

// mountOpens is Opens of a mount: of a file system that can do more than keep files, or of new options of one.
func (e *Event) mountOpens() (Opening, bool) {
	o := Opening{Call: e.Syscall, Operation: e.MountType}
	switch {
	case e.Syscall == "fspick" || e.Syscall == "mount" && mountFlags(e)&(mountRemount|mountBind) == mountRemount:
		o.Operation, o.Claims = "remount", opensFiles
		o.Why = "its options can name a file of quotas, which the kernel writes"
		return o, e.Errno == 0
	case e.Syscall == "fsopen":
		o.Operation = e.Target
	case e.Syscall != "mount" || mountFlags(e)&mountChanges != 0:
		return o, false
	}
	// A server may have refused what failed.
	if e.Errno == enodev || e.Errno != 0 && e.Syscall == "fsopen" {
		return o, false
	}
	if e.Claimed {
		o.Claims, o.Why = everything, "another task may have changed its type"
		return o, true
	}
	g := filesystemGroup(o.Operation)
	o.Claims, o.Why = g.claims, g.why
	return o, g.account == AccountOpen
}

// Ways of enum passed in bpf/record.h that are none.
const (
	packetOptions = 64
	askedBeside   = 128
)

// unnamed are what the programs noted of the run as a whole, by enum passed in bpf/record.h.
func unnamed(passed uint32) (list []Opening) {
	if passed&packetOptions != 0 {
		list = append(list, Opening{Call: "packet", Operation: "options", Claims: opensHosts, Why: otherWay})
	}
	if passed&askedBeside != 0 {
		list = append(list, Opening{Call: "netlink", Operation: "message that no call tells of", Claims: everything,
			Why: unknownWhy})
	}
	return list
}

// opening fills in what a record of a call is that has no line: its number and operation.
func (d *decoder) opening(r *record, bits uint32) {
	const x32 = 1 << 30
	e, nr, op := &d.ev, r.arg(0), r.arg(1)
	t := d.native
	if bits&bitIA32 != 0 {
		t = d.ia32
	}
	e.setArgs(nr, op)
	e.opening = Opening{}
	if table := op >> 56; table > 0 && table <= uint64(len(operationTables)) {
		t := &operationTables[table-1]
		e.opening.Call = t.call
		e.opening.Operation, e.opening.Claims, e.opening.Why = t.opening(op &^ (255 << 56))
		e.Value = t.call + " " + e.opening.Operation
		return
	}
	if nr >= uint64(len(t)) || t[nr] == nil {
		e.Value = fmt.Sprintf("call %d", uint32(nr))
		if nr&x32 != 0 {
			e.Value = fmt.Sprintf("call %d of x32", nr&^x32)
		} else if bits&bitIA32 != 0 {
			e.Value += " of a 32-bit program"
		}
		e.opening = Opening{Call: e.Value, Claims: everything, Why: unknownWhy, Undecoded: true}
		return
	}
	c := modelCalls()[t[nr].name]
	e.Value = c.name
	e.opening = Opening{Call: c.name, Claims: c.claims, Why: c.why}
}
