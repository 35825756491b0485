package kernel

import (
	"bytes"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Flags of mount(2), from linux/mount.h. Those of mountChanges change mounts that exist.
const (
	mountMagic     = 0xC0ED0000 // which old programs put above the flags
	mountMagicMask = 0xFFFF0000
	mountChanges   = 1<<5 | 1<<12 | 1<<13 | 1<<17 | 1<<18 | 1<<19 | 1<<20 // remount, bind, move, propagation
)

// mountTypeSize bounds what is known of the type that mount(2) was given, in bytes.
const mountTypeSize = 8

// localFilesystems are the types of file systems that keep their files on this host. The others can exchange data with
// other hosts by sockets of the kernel's own, which no hook sees. FUSE is served by a process, whose sockets are seen.
var localFilesystems = []string{
	"autofs", "bcachefs", "binder", "binfmt_misc", "bpf", "btrfs", "cgroup", "cgroup2", "configfs", "cpuset", "cramfs",
	"debugfs",
	"devpts", "devtmpfs", "ecryptfs", "efivarfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuse", "fuseblk",
	"fusectl", "hfs", "hfsplus", "hugetlbfs", "iso9660", "jfs", "minix", "mqueue", "msdos", "ntfs", "ntfs3", "overlay",
	"proc", "pstore", "ramfs", "reiserfs", "resctrl", "romfs", "rpc_pipefs", "securityfs", "selinuxfs", "smackfs",
	"squashfs", "sysfs", "tmpfs", "tracefs", "udf", "vfat", "xfs", "zfs", "zonefs",
}

// MountsRemote reports whether e mounts a file system that may exchange data with other hosts, or begins to. An
// attempt that failed counts: a server may have refused it. certain is false if that is not known: another task may
// have changed the type, or this host refused the call.
func MountsRemote(e *Event) (remote, certain bool) {
	const eperm, enodev = 1, 19
	var name string
	switch {
	case e.Kind != schema.KindMount || e.Attempted || e.Errno == enodev:
		return false, true
	case e.Syscall == "fsopen" && e.Errno == 0:
		name = e.Target
	case e.Syscall == "mount":
		flags := e.Flags
		if flags&mountMagicMask == mountMagic {
			flags &^= mountMagicMask
		}
		if flags&mountChanges != 0 {
			return false, true
		}
		name = e.MountType
	default:
		return false, true
	}
	remote = !slices.ContainsFunc(localFilesystems, func(local string) bool {
		return name == local[:min(len(local), mountTypeSize)] || name == local
	}) && !strings.HasPrefix(name, "fuse.")
	if e.Claimed {
		return true, false
	}
	return remote, !remote || e.Errno != eperm
}

// mountTypeOf is the type of a file system in the argument of mount(2) that the observer left.
func mountTypeOf(arg uint64) string {
	name, _, _ := bytes.Cut(le.AppendUint64(nil, arg), []byte{0})
	return string(name)
}
