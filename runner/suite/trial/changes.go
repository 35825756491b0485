package trial

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ChangesFile is the name of the file, in the workspace of an attempt's run, with what the agent changed in the root of
// its container: a tar file as the layers of an image are, in which .wh.NAME stands for the removed file NAME.
const ChangesFile = "container.tar"

// maxChanges limits the contents in a ChangesFile, in bytes.
const maxChanges = 48 << 20

// Names in a layer's tar file.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq" // the directory has nothing of the layers below
)

// saveChanges writes what a container that has ended, or is paused, changed in its root. upper is the upper directory
// of its overlay. saveChanges returns what is not in the file.
func saveChanges(upper, file string) (lacks []string, err error) {
	if !filepath.IsAbs(upper) {
		err = errors.New("the engine does not keep it in an overlay file system")
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(upper)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w, left := tar.NewWriter(out), int64(maxChanges)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		why, err := saveFile(w, root, name, &left)
		if why != "" {
			lacks = append(lacks, "/"+name+" ("+why+")")
		}
		return err
	})
	return lacks, errors.Join(err, w.Close(), out.Close())
}

// saveFile adds a file of an overlay's upper directory. If it is not added, why says so.
func saveFile(w *tar.Writer, root *os.Root, name string, left *int64) (why string, err error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	head := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: info.ModTime()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		head.Typeflag, head.Name = tar.TypeDir, name+"/"
		if err := w.WriteHeader(head); err != nil || !replaces(root, name) {
			return "", err
		}
		return "", w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name + "/" + opaque})
	case mode&fs.ModeSymlink != 0:
		head.Typeflag = tar.TypeSymlink
		if head.Linkname, err = root.Readlink(name); err != nil {
			return "", err
		}
		return "", w.WriteHeader(head)
	case mode&fs.ModeCharDevice != 0 && st.Rdev == 0:
		return "", w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg,
			Name: path.Join(path.Dir(name), whiteout+path.Base(name))})
	case mode&fs.ModeNamedPipe != 0:
		head.Typeflag = tar.TypeFifo
		return "", w.WriteHeader(head)
	case !mode.IsRegular():
		return "a socket or a device", nil
	case st.Size > *left:
		return fmt.Sprintf("%d bytes", st.Size), nil
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	*left -= st.Size
	head.Typeflag, head.Size = tar.TypeReg, st.Size
	if err = w.WriteHeader(head); err == nil {
		_, err = io.CopyN(w, f, st.Size)
	}
	return "", err
}

// replaces reports whether a directory of an overlay's upper directory hides the one below.
func replaces(root *os.Root, name string) bool {
	dir, err := root.Open(name)
	if err != nil {
		return false
	}
	defer dir.Close()
	value := make([]byte, 1)
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value)
	return err == nil && n == 1 && value[0] == 'y'
}

// readChanges reads a ChangesFile: the files as a tar file, and the names of those that were removed.
func readChanges(file string) (kept *bytes.Buffer, removed []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 2*maxChanges) {
		err = fmt.Errorf("%s is not a regular file of at most %d bytes", file, 2*maxChanges)
	}
	if err != nil {
		return nil, nil, err
	}
	kept = &bytes.Buffer{}
	w, left := tar.NewWriter(kept), int64(maxChanges)
	for r := tar.NewReader(f); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return kept, removed, w.Close()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if left -= head.Size; left < 0 { // a sparse file may be of any size
			return nil, nil, fmt.Errorf("%s: its files have more than %d bytes", file, maxChanges)
		}
		dir, base := path.Split("/" + head.Name)
		if base == opaque {
			removed = append(removed, dir)
			continue
		}
		if gone, is := strings.CutPrefix(base, whiteout); is {
			removed = append(removed, dir+gone)
			continue
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, nil, err
		}
		if _, err := io.Copy(w, r); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}

// restore makes the changes of a ChangesFile in a container that runs. Nothing of the agent is there yet.
func restore(ctx context.Context, container, file string) error {
	kept, removed, err := readChanges(file)
	if err != nil {
		return err
	}
	for len(removed) > 0 {
		n := min(len(removed), 500)
		_, err := docker(ctx, append([]string{"exec", "--user", "0", container, "rm", "-rf", "--"}, removed[:n]...)...)
		if err != nil {
			return err
		}
		removed = removed[n:]
	}
	_, err = dockerFrom(ctx, kept, "cp", "--archive", "-", container+":/")
	return err
}
