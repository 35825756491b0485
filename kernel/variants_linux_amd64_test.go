package kernel

import "golang.org/x/sys/unix"

// The calls without a directory descriptor, which arm64 never had. CPython and
// others use them still. They run before those of variants.
func init() {
	legacy := []variant{
		{"mkdir mkdir l -", func() { raw("mkdir", cstr("l"), 0o755) }},
		{"openat open l/one -", func() { raw("open", cstr("l/one"), unix.O_CREAT|unix.O_RDWR, 0o600) }},
		{"openat open l/nope - ENOENT", func() { raw("open", cstr("l/nope"), 0, 0) }},
		{"openat creat l/two -", func() { raw("creat", cstr("l/two"), 0o600) }},
		{"link link l/one l/linked", func() { raw("link", cstr("l/one"), cstr("l/linked")) }},
		{"symlink symlink l/sym =one", func() { raw("symlink", cstr("one"), cstr("l/sym")) }},
		{"rename rename l/two l/three", func() { raw("rename", cstr("l/two"), cstr("l/three")) }},
		{"rename rename l/nope l/x ENOENT", func() { raw("rename", cstr("l/nope"), cstr("l/x")) }},
		{"mknod mknod l/fifo -", func() { raw("mknod", cstr("l/fifo"), unix.S_IFIFO|0o600, 0) }},
		{"chmod chmod l/one -", func() { raw("chmod", cstr("l/one"), 0o640) }},
		{"chown chown l/one -", func() { raw("chown", cstr("l/one"), 0, 0) }},
		{"chown lchown l/sym -", func() { raw("lchown", cstr("l/sym"), 0, 0) }},
		{"utime utime l/one -", func() { raw("utime", cstr("l/one"), 0) }},
		{"utime utimes l/one -", func() { raw("utimes", cstr("l/one"), 0) }},
		{"utime futimesat l/one -", func() { raw("futimesat", atFDCWD, cstr("l/one"), 0) }},
		{"unlink unlink l/three -", func() { raw("unlink", cstr("l/three")) }},
		{"mkdir mkdir l/sub -", func() { raw("mkdir", cstr("l/sub"), 0o755) }},
		{"rmdir rmdir l/sub -", func() { raw("rmdir", cstr("l/sub")) }},
		{"rmdir rmdir l - ENOTEMPTY", func() { raw("rmdir", cstr("l")) }},
		{"privileged iopl - - *", func() { raw("iopl", 99) }},
		{"privileged ioperm - - *", func() { raw("ioperm", 0, 0, 0) }},
	}
	variants = append(legacy, variants...)
}
