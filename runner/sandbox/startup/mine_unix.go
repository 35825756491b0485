//go:build unix

package startup

import (
	"io/fs"
	"os"
	"syscall"
)

// mine reports whether a file belongs to this process's user.
func mine(info fs.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid()) }
