package evaluation

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Flags of open(2). The second is O_DIRECT on one architecture and O_DIRECTORY on another.
const (
	openPath      = 0x200000
	openDirectory = 0x10000 | 0x4000
)

// uncertain reports whether the names in an event may not be those of the files that it touched. The name of
// a file that was opened or executed is the kernel's, whatever the caller's memory holds.
func uncertain(k *schema.KernelEvent) bool {
	const marks = schema.MarkRelative | schema.MarkUnreachable | schema.MarkUnreadable | schema.MarkUnresolved |
		schema.MarkMountNamespace
	claimed := k.Claimed && k.Kind != schema.KindOpen && k.Kind != schema.KindExec && k.Kind != schema.KindWrite
	return claimed || k.UserMemory || k.Marks&marks != 0 && k.Marks&schema.MarkMemfd == 0 ||
		k.Truncated&(schema.FieldValue|schema.FieldTarget) != 0
}

// Types of files in a mode (sys/stat.h).
const (
	modeType  = 0o170000
	modeBlock = 0o060000
)

// memoryOf is the process whose memory a file is.
func memoryOf(name string) (pid string, ok bool) {
	rest, ok := strings.CutPrefix(name, "/proc/")
	pid, file, _ := strings.Cut(rest, "/")
	return pid, ok && path.Base(file) == "mem" && strings.Trim(pid, "0123456789") == ""
}

// comparing reports whether git was told to do something for which it reads all of the working tree, and shows
// nothing but what changed.
func comparing(argv []string) bool {
	command, _, args := split(argv)
	return !slices.Contains(args, "--no-index") && slices.Contains([]string{
		"add", "am", "checkout", "commit", "describe", "diff", "diff-files", "diff-index", "merge", "rebase", "reset",
		"stash", "status", "switch", "update-index",
	}, command)
}

// device reports whether a file holds all of a file system or of the memory.
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

func changed(k *schema.KernelEvent, how schema.Access) string {
	switch {
	case k.Kind == schema.KindRename:
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

// renameExchange is RENAME_EXCHANGE: both names are there, and each stands for what the other stood for.
const renameExchange = 2
