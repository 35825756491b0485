//go:build amd64 || arm64

package notify

import (
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// calls are the notified system calls by number, of 64-bit and of 32-bit programs.
var calls = sync.OnceValues(func() (native, compat map[uint32]*kernel.Call) {
	native, compat = kernel.Calls()
	exit := func() *kernel.Call {
		return &kernel.Call{
			Name: "exit_group", Kind: schema.KindExit, Hook: kernel.HookExit, FD: kernel.NoArg, Dirfd: kernel.NoArg,
			Path:   kernel.NoArg,
			Dirfd2: kernel.NoArg, Path2: kernel.NoArg, Text: kernel.NoArg,
		}
	}
	native[exitGroup] = exit()
	if compatArch != 0 {
		compat[exitGroup2] = exit()
	}
	return native, compat
})

// callOf finds the system call of a notification. It returns nil if no table has the call.
func callOf(arch uint32, nr int32) (c *kernel.Call, compat bool) {
	native, others := calls()
	switch {
	case arch == auditArch:
		return native[uint32(nr)], false // x32 numbers are in no table
	case compatArch != 0 && arch == compatArch:
		return others[uint32(nr)], true
	}
	return nil, false
}
