package layer

import (
	"io/fs"
	"syscall"
)

// inode is a file's number; 0 is unknown.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
