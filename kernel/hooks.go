package kernel

// HookID indexes [Report].Hooks and the result of [Probe], which list the hooks
// in this order.
type HookID uint16

// Hooks, in the order of enum hook in bpf/record.h. A hook is a group of calls
// with one account, not one attachment: all "syscall/" hooks hang on sys_exit.
const (
	HookExec HookID = iota
	HookFork
	HookExit
	HookMoved
	HookOpen
	HookExecFailed
	HookWrite
	HookMmap
	HookRename
	HookUnlink
	HookLink
	HookMkdir
	HookTruncate
	HookAttr
	HookChdir
	HookSocket
	HookPrivilege
	HookIOUring
	HookConnect4
	HookConnect6
	HookSendmsg4
	HookSendmsg6
	HookBind4
	HookBind6
	HookTCP
	HookSkbIn
	HookSkbOut
	HookExecArgs
	HookFlush
	HookCompat
	HookSignal
	hookCount
)

// hookCells is the number of counter cells per CPU (H_CELLS).
const hookCells = 64

// hookInfo is what is known of a hook before anything is loaded.
type hookInfo struct {
	name string
	// progs are the programs the hook needs, in the object.
	progs []string
	// required: without it the kernel layer is not complete.
	required bool
	// selfTested: the self-test must see it fire, unless the host lacks what it
	// takes. The others have no call that makes them fire for certain.
	selfTested bool
}

var hooks = [hookCount]hookInfo{
	HookExec:       {"sched_process_exec", []string{"execed"}, true, true},
	HookFork:       {"sched_process_fork", []string{"forked"}, true, true},
	HookExit:       {"sched_process_exit", []string{"exited"}, true, true},
	HookMoved:      {"cgroup_attach_task", []string{"moved"}, true, true},
	HookOpen:       {"syscall/open", []string{"sys_exit"}, true, true},
	HookExecFailed: {"syscall/exec_failed", []string{"sys_exit"}, true, true},
	HookWrite:      {"syscall/write", []string{"sys_exit"}, true, true},
	HookMmap:       {"syscall/mmap_shared", []string{"sys_exit"}, true, true},
	HookRename:     {"syscall/rename", []string{"sys_exit"}, true, true},
	HookUnlink:     {"syscall/unlink", []string{"sys_exit"}, true, true},
	HookLink:       {"syscall/link", []string{"sys_exit"}, true, true},
	HookMkdir:      {"syscall/mkdir", []string{"sys_exit"}, true, true},
	HookTruncate:   {"syscall/truncate", []string{"sys_exit"}, true, true},
	HookAttr:       {"syscall/attributes", []string{"sys_exit"}, true, true},
	HookChdir:      {"syscall/chdir", []string{"sys_exit"}, true, true},
	HookSocket:     {"syscall/socket", []string{"sys_exit"}, true, true},
	HookPrivilege:  {"syscall/privilege", []string{"sys_exit"}, true, true},
	HookIOUring:    {"io_uring_submit_req", []string{"submitted", "completed"}, false, false},
	HookConnect4:   {"cgroup/connect4", []string{"connect4"}, true, true},
	HookConnect6:   {"cgroup/connect6", []string{"connect6"}, true, true},
	HookSendmsg4:   {"cgroup/sendmsg4", []string{"sendmsg4"}, true, true},
	HookSendmsg6:   {"cgroup/sendmsg6", []string{"sendmsg6"}, true, true},
	HookBind4:      {"cgroup/bind4", []string{"bind4"}, true, true},
	HookBind6:      {"cgroup/bind6", []string{"bind6"}, true, true},
	HookTCP:        {"inet_sock_set_state", []string{"settled"}, true, true},
	HookSkbIn:      {"cgroup_skb/ingress", []string{"skb_in"}, false, false},
	HookSkbOut:     {"cgroup_skb/egress", []string{"skb_out"}, false, false},
	HookExecArgs:   {"exec_arguments", []string{"execed"}, true, true},
	HookFlush:      {"coalescing_flush", []string{"sys_exit"}, true, false},
	HookSignal:     {"signal_generate", []string{"signalled"}, true, false},
	HookCompat:     {"syscall/compat", []string{"sys_exit"}, true, false},
}

// String is the hook's name in observation-health.json.
func (h HookID) String() string {
	if h < hookCount {
		return hooks[h].name
	}
	return "unknown"
}
