package store

import (
	"fmt"
	"os"
	"syscall"
)

// Stamp returns a text that changes when a file is written or replaced: its inode, size and times. A program cannot
// set back the time of the last change (ctime).
func Stamp(f os.FileInfo) string {
	s := fmt.Sprintf("%d %d", f.Size(), f.ModTime().UnixNano())
	if st, ok := f.Sys().(*syscall.Stat_t); ok {
		s += fmt.Sprintf(" %d %d.%09d", st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
	}
	return s
}
