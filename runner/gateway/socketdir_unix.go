//go:build unix

package gateway

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// flock locks a file for as long as this process has it open.
func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// sweepSocketDirs removes directories of ours whose owner died. One that is
// being made has no lock for a moment: only old ones are taken for left.
func sweepSocketDirs(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, socketDirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err == nil && flock(f) != nil {
			f.Close()
			continue // its owner lives
		}
		if err == nil || os.IsNotExist(err) {
			os.RemoveAll(dir)
		}
		if f != nil {
			f.Close()
		}
	}
}

// interrupt makes Accept return.
func (l *listener) interrupt(u *net.UnixListener) { u.SetDeadline(time.Unix(1, 0)) }
