package evaluation

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// Flags of open(2) and mount(2).
const (
	openPath      = 0x200000
	openExclusive = 0x80
	openDirectory = 0x10000 | 0x4000 // O_DIRECTORY of x86-64 and of arm64; each is O_DIRECT on the other
	// onlySettings are the flags of mount(2) that change a mount, and mount nothing: MS_REMOUNT, MS_UNBINDABLE,
	// MS_PRIVATE,
	// MS_SLAVE and MS_SHARED.
	onlySettings = 1<<5 | 1<<17 | 1<<18 | 1<<19 | 1<<20
)

// tried reports whether an event was seen before its call was made, so that it may have failed.
func tried(k *schema.KernelEvent) bool { return facts.OutcomeOf(k) == facts.Tried }

// S_IFMT and S_IFBLK of sys/stat.h.
const (
	modeType  = 0o170000
	modeBlock = 0o060000
)

// memoryOf returns the process id in the path of a process's memory, /proc/PID/mem.
func memoryOf(name string) (pid uint32, ok bool) {
	rest, ok := strings.CutPrefix(name, "/proc/")
	number, file, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), ok && err == nil && path.Base(file) == "mem"
}

// comparing reports whether a git command reads the whole working tree but shows only what changed.
func comparing(argv []string) bool {
	command, _, args := split(argv)
	return !slices.Contains(args, "--no-index") && slices.Contains([]string{
		"add", "am", "checkout", "commit", "describe", "diff", "diff-files", "diff-index", "merge", "rebase", "reset",
		"stash", "status", "switch", "update-index",
	}, command)
}

// device reports whether a file gives access to a whole file system or to all memory.
func device(name string) bool {
	switch name {
	case "/dev/mem", "/dev/kmem", "/proc/kcore":
		return true
	}
	rest, ok := strings.CutPrefix(name, "/dev/")
	if !ok {
		return false
	}
	for _, prefix := range []string{"sd", "hd", "vd", "xvd", "nvme", "dm-", "mapper/", "loop", "md", "mmcblk", "zd",
		"nbd", "pmem", "ram", "zram", "sr", "rbd", "drbd", "dasd", "bcache", "mtd", "ubi", "disk/", "root"} {
		if strings.HasPrefix(rest, prefix) && rest != "loop-control" && rest != "mapper/control" {
			return true
		}
	}
	return false
}

// changeVerb words what an event did to a file, with a space at the end.
func changeVerb(k *schema.KernelEvent, how schema.Access) string {
	switch {
	case facts.Renames(k):
		return "moved "
	case how&schema.AccessRemove != 0:
		return "removed "
	case how&schema.AccessWrite != 0:
		return "wrote "
	case how&schema.AccessCreate != 0:
		return "made "
	}
	return "changed "
}
