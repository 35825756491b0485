package vmtest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
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

// systemd adds a Debian system to the archive. It fetches the packages into dir and unpacks
// them, but does not run their scripts.
func (a *archive) systemd(arch, dir string, more []string) error {
	files, err := debs(arch, dir, slices.Concat(systemdPackages, more))
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		a.parents("usr/" + d)
		a.add(d, 0o120777, []byte("usr/"+d))
		a.made[d] = true
	}
	for _, f := range files {
		if err := a.deb(f); err != nil {
			return fmt.Errorf("unpack %s: %w", f, err)
		}
	}
	for name, text := range systemdFiles {
		a.parents(filepath.Dir(name))
		a.add(name, 0o100644, []byte(text))
	}
	return a.err
}

// deb adds the files of a package, at their places on a system with a merged /usr.
func (a *archive) deb(name string) error {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", name)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	defer cmd.Wait()
	defer out.Close()
	for r := tar.NewReader(out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := strings.Trim(strings.TrimPrefix(h.Name, "."), "/")
		switch top, _, _ := strings.Cut(name, "/"); {
		case name == "" || name == top && a.made[name]:
			continue
		case top == "bin" || top == "sbin" || top == "lib" || top == "lib64":
			name = "usr/" + name
		}
		if strings.HasPrefix(name, "usr/share/doc/") || strings.HasPrefix(name, "usr/share/locale/") ||
			strings.Contains(name, "/perl") {
			continue
		}
		data, mode := []byte(nil), uint32(h.Mode)&0o7777
		switch h.Typeflag {
		case tar.TypeReg:
			mode |= 0o100000
			data, err = io.ReadAll(r)
		case tar.TypeDir:
			mode |= 0o040000
		case tar.TypeSymlink:
			mode, data = 0o120777, []byte(h.Linkname)
		case tar.TypeLink:
			mode, data = 0o120777, []byte(strings.TrimPrefix(h.Linkname, "."))
		}
		if err != nil {
			return err
		}
		a.add(name, mode, data)
	}
}
