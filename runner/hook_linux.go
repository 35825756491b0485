package runner

import (
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/assay-run/assay-run/kernel"
)

// ownHook tells of an exec whether it is of "assay-run hook": of this very program,
// by its path and its file, or of a shell for it. Nil where that cannot be told.
func ownHook() func(*kernel.Event) bool {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return func(ev *kernel.Event) bool {
		switch {
		case len(ev.Argv) < 3 || len(ev.Argv) > 3 && string(ev.Argv[3]) != "--":
			return false
		case string(ev.Argv[1]) == "hook": // what it starts has an exec of its own
			return ev.Inode == file.Ino && !ev.Deleted && string(ev.Exe) == path
		}
		return len(ev.Argv) == 3 && shells[string(ev.Exe)] && hookLine().Match(ev.Argv[2])
	}
}

// Agents have a shell execute a hook's command line. What that executes is looked at
// by itself.
var (
	shells   = map[string]bool{"/usr/bin/dash": true, "/usr/bin/bash": true, "/bin/dash": true, "/bin/bash": true, "/bin/busybox": true}
	hookLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^('[^']*/assay_shell' )?'?assay-run hook [a-z-]+'?$`)
	})
)
