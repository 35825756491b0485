package store

import (
	"fmt"
	"os"
	"syscall"
)

// Stamp differs once a file has been written or replaced. It is the number of the file, its
// size, and when it and its contents last changed, which no program can set back.
func Stamp(f os.FileInfo) string {
	s := fmt.Sprintf("%d %d", f.Size(), f.ModTime().UnixNano())
	if st, ok := f.Sys().(*syscall.Stat_t); ok {
		s += fmt.Sprintf(" %d %d.%09d", st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
	}
	return s
}
