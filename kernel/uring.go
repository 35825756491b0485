package kernel

import (
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// How an operation of io_uring is observed, in the order of enum uring_how in bpf/record.h.
const (
	uringUnknown  = iota // unknown to this build: the layer is not complete
	uringHarmless        // touches no path and no peer
	uringNamed           // names files: its submission and its completion are joined
	uringWrite
	uringFD
	uringSocket
	uringOther   // reported by its number alone: schema.KindIOUringOp
	uringFamily  // makes a socket, reported if no hook sees the socket's peers
	uringReceive // may receive descriptors
	uringRead    // matters only for sockets that somebody else made
)

// uringOp is what is known of an operation, whose number is its place in
// uringOps (include/uapi/linux/io_uring.h).
type uringOp struct {
	name string
	how  uint8
	kind schema.KernelKind
}

var uringOps = [...]uringOp{
	0: {"nop", uringHarmless, 0}, 1: {"readv", uringRead, 0}, 2: {"writev", uringWrite, schema.KindWrite},
	3: {"fsync", uringHarmless, 0},
	4: {"read_fixed", uringRead, 0}, 5: {"write_fixed", uringWrite, schema.KindWrite},
	6: {"poll_add", uringHarmless, 0},
	7: {"poll_remove", uringHarmless, 0}, 8: {"sync_file_range", uringHarmless, 0},
	9:  {"sendmsg", uringSocket, schema.KindSendto},
	10: {"recvmsg", uringReceive, 0}, 11: {"timeout", uringHarmless, 0}, 12: {"timeout_remove", uringHarmless, 0},
	13: {"accept", uringSocket, schema.KindAccept}, 14: {"async_cancel", uringHarmless, 0},
	15: {"link_timeout", uringHarmless, 0},
	16: {"connect", uringSocket, schema.KindConnect}, 17: {"fallocate", uringFD, schema.KindTruncate},
	18: {"openat", uringNamed, schema.KindOpen},
	19: {"close", uringHarmless, 0}, 20: {"files_update", uringHarmless, 0}, 21: {"statx", uringHarmless, 0},
	22: {"read", uringRead, 0},
	23: {"write", uringWrite, schema.KindWrite}, 24: {"fadvise", uringHarmless, 0}, 25: {"madvise", uringHarmless, 0},
	26: {"send", uringSocket, schema.KindSendto},
	27: {"recv", uringRead, 0}, 28: {"openat2", uringNamed, schema.KindOpen}, 29: {"epoll_ctl", uringHarmless, 0},
	30: {"splice", uringWrite, schema.KindWrite},
	31: {"provide_buffers", uringHarmless, 0}, 32: {"remove_buffers", uringHarmless, 0}, 33: {"tee", uringHarmless, 0},
	34: {"shutdown", uringHarmless, 0}, 35: {"renameat", uringNamed, schema.KindRename},
	36: {"unlinkat", uringNamed, schema.KindUnlink},
	37: {"mkdirat", uringNamed, schema.KindMkdir}, 38: {"symlinkat", uringNamed, schema.KindSymlink},
	39: {"linkat", uringNamed, schema.KindLink},
	40: {"msg_ring", uringOther, 0}, 41: {"fsetxattr", uringFD, schema.KindSetxattr},
	42: {"setxattr", uringNamed, schema.KindSetxattr},
	43: {"fgetxattr", uringHarmless, 0}, 44: {"getxattr", uringHarmless, 0},
	45: {"socket", uringFamily, schema.KindSocket}, 46: {"uring_cmd", uringOther, 0},
	47: {"send_zc", uringSocket, schema.KindSendto}, 48: {"sendmsg_zc", uringSocket, schema.KindSendto},
	49: {"read_multishot", uringRead, 0},
	50: {"waitid", uringHarmless, 0}, 51: {"futex_wait", uringHarmless, 0}, 52: {"futex_wake", uringHarmless, 0},
	53: {"futex_waitv", uringHarmless, 0},
	54: {"fixed_fd_install", uringHarmless, 0}, 55: {"ftruncate", uringFD, schema.KindTruncate},
	56: {"bind", uringSocket, schema.KindBind},
	57: {"listen", uringSocket, schema.KindListen}, 58: {"recv_zc", uringRead, 0},
	59: {"epoll_wait", uringHarmless, 0},
	60: {"readv_fixed", uringRead, 0}, 61: {"writev_fixed", uringWrite, schema.KindWrite},
	62: {"pipe", uringHarmless, 0},
	63: {"nop128", uringHarmless, 0}, 64: {"uring_cmd128", uringOther, 0},
}

// account and why are what is known of the operation. [Event.Opens] says so of one without a row.
func (o *uringOp) account() Account {
	switch o.how {
	case uringHarmless:
		return AccountOwn
	case uringOther, uringUnknown:
		return AccountOpen
	}
	return AccountRecorded
}

func (o *uringOp) why() string {
	switch o.account() {
	case AccountOwn:
		return "it touches no path and no peer"
	case AccountRecorded:
		return asLine
	}
	return unknownWhy
}

// uringSyscall is what Event.Syscall says of a request's.
const uringSyscall = "io_uring"

// unfollowed reports whether an operation that is told of by its number alone
// may have been one that a kind exists for.
func unfollowed(op uint64) bool {
	return op >= uint64(len(uringOps)) || uringOps[op].how != uringOther
}

// OperationName names an operation of io_uring with its number.
func OperationName(op uint8) string {
	if int(op) < len(uringOps) {
		return fmt.Sprintf("%d (%s)", op, uringOps[op].name)
	}
	return fmt.Sprint(op)
}

// maxRequests bounds the submissions whose completion has not come.
const maxRequests = 16384

// requests are the records of submissions that wait for how they ended, by id.
type requests struct {
	byID  map[uint64][]byte
	order []uint64 // the ids, oldest first, some of them gone
}

func (q *requests) add(id uint64, raw []byte) {
	if q.byID == nil {
		q.byID = map[uint64][]byte{}
	}
	q.byID[id] = slices.Clone(raw)
	q.order = append(q.order, id)
}

func (q *requests) take(id uint64) []byte {
	raw := q.byID[id]
	delete(q.byID, id)
	return raw
}

// oldest takes out the one that waits longest where more than n do, nil else.
func (q *requests) oldest(n int) []byte {
	for len(q.order) > 0 && (len(q.byID) > n || q.byID[q.order[0]] == nil) {
		id := q.order[0]
		q.order = q.order[1:]
		if raw := q.take(id); raw != nil {
			return raw
		}
	}
	return nil
}
