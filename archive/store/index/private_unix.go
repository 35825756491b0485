//go:build unix

package index

import (
	"os"
	"syscall"
)

// private reports whether nobody but this user can write to a folder.
func private(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
