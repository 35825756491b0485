//go:build amd64 || arm64

package notify

import (
	"bytes"
	"fmt"
)

// maxPath is the kernel's PATH_MAX, with the NUL.
const maxPath = 4096

// foreignCall is a call of another instruction set by one process.
type foreignCall struct {
	pid   uint32
	start uint64
	arch  uint32
	nr    int32
}

// maxForeign bounds how many such calls are reported.
const maxForeign = 4096

func foreignName(arch uint32, nr int32) string {
	if arch == auditArch {
		return fmt.Sprintf("x32:%d", nr&^x32Bit)
	}
	return fmt.Sprintf("compat:%d", nr)
}

// join appends the parts of name to an absolute path that the kernel returned. A ".."
// before any name leads to the path's parent. A ".." after a name stays as it is, since
// the name may be a symbolic link.
func join(dst, name []byte) (path []byte, unresolved bool) {
	if len(dst) == 1 {
		dst = dst[:0] // the root
	}
	named := false
	for len(name) > 0 {
		part, rest, _ := bytes.Cut(name, []byte{'/'})
		name = rest
		switch {
		case len(part) == 0, string(part) == ".":
			continue
		case string(part) == ".." && !named:
			dst = dst[:max(0, bytes.LastIndexByte(dst, '/'))]
			continue
		case string(part) == "..":
			unresolved = true
		}
		named = true
		dst = append(append(dst, '/'), part...)
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst, unresolved
}
