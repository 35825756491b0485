package kernel

// NoArg stands for an argument that a Call does not have.
const NoArg = noArg

// Call is a system call as an observer reads its arguments. The fields after
// Hook are indexes of arguments, or NoArg.
type Call struct {
	Name string
	Kind Kind
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

func (t *sysTable) calls() map[uint32]*Call {
	calls := make(map[uint32]*Call)
	for nr, row := range t {
		if row == nil {
			continue
		}
		switch row.prog {
		case progOpen, progPath, progFD, progCwd, progArgs, progSocket, progPacked, progClone, progFamily, progBPF, progPrctl, progIoctl:
		default:
			continue
		}
		switch row.name {
		case "old_mmap", "accept", "accept4":
			continue
		}
		calls[uint32(nr)] = &Call{
			Name: row.name, Kind: Kind(row.kind), Hook: HookID(row.hook),
			FD: row.fd, Dirfd: row.dfd, Path: row.path, Dirfd2: row.dfd2, Path2: row.path2, Text: row.str, row: row,
		}
	}
	return calls
}
