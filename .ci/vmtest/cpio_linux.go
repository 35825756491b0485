package vmtest

import (
	"fmt"
	"io"
	"os"
	"path"
)

// archive writes a cpio archive in the "newc" format, which the kernel unpacks
// as its first file system (Documentation/driver-api/early-userspace/buffer-format.rst).
// After an error it stays broken.
type archive struct {
	w    io.Writer
	made map[string]bool
	ino  int
	err  error
}

// add adds an entry; data is a file's content or a link's target.
func (a *archive) add(name string, mode uint32, data []byte) {
	if a.err != nil {
		return
	}
	a.ino++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(header), data} {
		if _, a.err = a.w.Write(append(part[:len(part):len(part)], make([]byte, (4-len(part)%4)%4)...)); a.err != nil {
			return
		}
	}
}

// file adds an executable file of the host's, with the directories above it.
func (a *archive) file(name, from string) {
	a.parents(path.Dir(name))
	data, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, 0o100755, data)
}

func (a *archive) parents(dir string) {
	if dir == "." || a.made[dir] {
		return
	}
	a.parents(path.Dir(dir))
	if a.made == nil {
		a.made = map[string]bool{}
	}
	a.made[dir] = true
	a.add(dir, 0o040755, nil)
}
