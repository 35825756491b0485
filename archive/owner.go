package archive

import (
	"fmt"
	"os"
	"syscall"

	"github.com/assay-run/assay-run/schema"
)

// onlyOurs reports whether a file belongs to this user and has no second name.
func onlyOurs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(st.Uid) == os.Geteuid() && st.Nlink == 1
}

// otherNames reports whether a file of a spool has a second name, through which somebody may have changed it. Serve
// itself makes one for the turns.
func otherNames(path string, info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1 && path != schema.TurnsPath
}

// foreign returns an error if this process is root and another user owns the spool: that user may have written its
// files, including the path of its bundle.
func foreign(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		return fmt.Errorf("the spool %s belongs to the user with the id %d, and you are root: recover it as that user",
			dir, st.Uid)
	}
	if !info.IsDir() {
		return fmt.Errorf("the spool %s is not a directory", dir)
	}
	return nil
}
