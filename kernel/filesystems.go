package kernel

import (
	"bytes"
	"strings"
)

// Flags of mount(2), from linux/mount.h. Those of mountChanges change mounts that exist.
const (
	mountMagic     = 0xC0ED0000 // which old programs put above the flags
	mountMagicMask = 0xFFFF0000
	mountRemount   = 1 << 5
	mountBind      = 1 << 12
	mountChanges   = mountRemount | mountBind | 1<<13 | 1<<17 | 1<<18 | 1<<19 | 1<<20 // move, propagation
)

// Errors of mount(2) by which this host refuses a type.
const enodev = 19

// mountTypeSize bounds what is known of the type that mount(2) was given, in bytes.
const mountTypeSize = 8

// filesystems are what mounting a file system of a type can do.
var filesystems = []placeGroup{
	{AccountRecorded, nil, "it keeps its files on this host; what is written to control the kernel counts as such", `
		autofs bcachefs binder binfmt_misc bpf btrfs cgroup cgroup2 configfs cpuset cramfs debugfs devpts devtmpfs
		ecryptfs efivarfs erofs exfat ext2 ext3 ext4 f2fs fuseblk fusectl hfs hfsplus hugetlbfs iso9660 jfs minix mqueue
		msdos ntfs ntfs3 overlay proc pstore ramfs reiserfs resctrl romfs rpc_pipefs securityfs selinuxfs smackfs
		squashfs sysfs tmpfs tracefs udf vfat xfs zfs zonefs`},
	{AccountRecorded, nil, "a process serves it, whose own acts are seen", `fuse fuse.*`},
}

// remoteFilesystems are all others: a socket of the kernel's own, which no hook sees, can serve them.
var remoteFilesystems = placeGroup{AccountOpen, opensHosts,
	"the kernel can exchange data with other hosts for such a file system", "other"}

// filesystemGroup is the group of a type, of which the first eight bytes may be all that is known.
func filesystemGroup(name string) *placeGroup {
	for i := range filesystems {
		for known := range strings.FieldsSeq(filesystems[i].names) {
			of, family := strings.CutSuffix(known, "*")
			if name == known || name == known[:min(len(known), mountTypeSize)] ||
				family && strings.HasPrefix(name, of) {
				return &filesystems[i]
			}
		}
	}
	return &remoteFilesystems
}

// mountFlags are the flags of mount(2) that the kernel heeds.
func mountFlags(e *Event) uint64 {
	if e.Flags&mountMagicMask == mountMagic {
		return e.Flags &^ mountMagicMask
	}
	return e.Flags
}

// mountTypeOf is the type of a file system in the argument of mount(2) that the observer left.
func mountTypeOf(arg uint64) string {
	name, _, _ := bytes.Cut(le.AppendUint64(nil, arg), []byte{0})
	return string(name)
}
