//go:build linux

package suite

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// copyWorkspace creates the directory to with the contents of a directory, and checks the digest of what it copied.
// Without from it is empty.
func copyWorkspace(ctx context.Context, from, digest, to string) error {
	if from == "" {
		return os.Mkdir(to, 0o755)
	}
	if err := workspace.Copy(ctx, from, to); err != nil {
		return err
	}
	got, err := digestTree(to)
	if err == nil && got != digest {
		err = changedWorkspace(from)
	}
	return err
}

// unpack creates the directory to with the contents of a tar file. No name in the file can lead out of it.
func unpack(in io.Reader, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, modes: map[string]fs.FileMode{}}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return u.setModes()
		}
		if err == nil {
			err = u.add(h, r)
		}
		if err != nil {
			return err
		}
	}
}

// unpacker creates files below a directory.
type unpacker struct {
	root  *os.Root
	dirs  []string
	modes map[string]fs.FileMode // of dirs; set at the end, since a read-only directory takes no files
}

func (u *unpacker) add(h *tar.Header, r io.Reader) error {
	name := filepath.Clean(strings.TrimPrefix(h.Name, "/"))
	if name == "." {
		return nil
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs, u.modes[name] = append(u.dirs, name), mode
		return u.root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(copySparse(f, r, h.Size), f.Chmod(mode), f.Close())
	case tar.TypeSymlink:
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return u.root.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeFifo:
		dir, err := u.root.Open(filepath.Dir(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		err = unix.Mknodat(int(dir.Fd()), filepath.Base(name), unix.S_IFIFO|0o600, 0)
		return errors.Join(err, u.root.Chmod(name, mode))
	}
	return fmt.Errorf("%s: it is an entry of type %q, which assay-suite does not unpack", schema.Readable(h.Name),
		h.Typeflag)
}

func (u *unpacker) setModes() error {
	for _, dir := range slices.Backward(u.dirs) {
		if err := u.root.Chmod(dir, u.modes[dir]); err != nil {
			return err
		}
	}
	return nil
}

// copySparse copies size bytes to a new file, with holes in place of long runs of zeros.
func copySparse(to *os.File, from io.Reader, size int64) error {
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for left := size; left > 0; left -= int64(len(block)) {
		block = block[:min(int64(len(block)), left)]
		if _, err := io.ReadFull(from, block); err != nil {
			return err
		}
		var err error
		if bytes.Equal(block, zeros[:len(block)]) {
			_, err = to.Seek(int64(len(block)), io.SeekCurrent)
		} else {
			_, err = to.Write(block)
		}
		if err != nil {
			return err
		}
	}
	return to.Truncate(size)
}

// sentTree is the name of the workspace in the archive that pack writes.
const sentTree = "tree"

// sentName is the name on the carrier of the workspace with the given digest.
func sentName(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// pack writes a workspace as a compressed tar file. It is an error if the workspace does not have the digest.
func pack(w io.Writer, from, digest string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = walkTree(from, func(path, name string, info fs.FileInfo) error {
		return packEntry(t, path, filepath.Join(sentTree, name), info)
	})
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return err
	}
	if got, err := digestTree(from); err != nil || got != digest {
		return errors.Join(err, changedWorkspace(from))
	}
	return nil
}

func changedWorkspace(path string) error {
	return fmt.Errorf("the workspace %s has changed since the suite began", path)
}

func packEntry(t *tar.Writer, path, name string, info fs.FileInfo) error {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatPAX
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t, f)
	return err
}

// unpackSent creates the directory to from the output of pack. The workspace is sentTree in it.
func unpackSent(in io.Reader, to string) error {
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	return unpack(z, to)
}

// digestTree is the digest of a file's contents, or of the names, types, permissions and contents of all files below a
// directory. Times and owners are not part of it. Sockets and devices are an error.
func digestTree(root string) (string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = walkTree(root, func(path, name string, info fs.FileInfo) error {
		return digestEntry(sum, path, name, info, io.Discard)
	})
	if err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// digestEntry adds one file to the digest, and writes its contents to seen. The length of each part precedes it, so
// that different trees never give the same bytes.
func digestEntry(sum hash.Hash, path, name string, info fs.FileInfo, seen io.Writer) error {
	put := func(s string) {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		io.WriteString(sum, s)
	}
	put(name)
	put(info.Mode().String())
	switch {
	case info.IsDir(), info.Mode()&fs.ModeNamedPipe != 0:
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		put(target)
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", schema.Readable(name), errOddFile)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	contents := sha256.New()
	if _, err := io.Copy(io.MultiWriter(contents, seen), in); err != nil {
		return err
	}
	sum.Write(contents.Sum(nil))
	return nil
}

// prepareSources decides what the workspaces of the tries are copies of, by task: the task's workspace, or a copy of it
// in the suite's directory that was made whole.
func prepareSources(f *File, dir string) (map[string]source, error) {
	made := filepath.Join(dir, "work", "workspaces")
	if err := workspace.Remove(made); err != nil {
		return nil, err
	}
	sources := map[string]source{}
	by := map[string]source{} // by the name in the file
	for i := range f.Tasks {
		t := &f.Tasks[i]
		s := f.surveys[t.Workspace]
		if s == nil {
			continue
		}
		from, done := by[t.Workspace]
		if !done {
			from = source{f.path(t.Workspace), s.digest, s.place}
			if len(s.repositories) > 0 {
				own := filepath.Join(made, t.Name)
				err := os.MkdirAll(made, 0o700)
				if err == nil {
					err = s.prepare(context.Background(), from.path, own)
				}
				if err == nil {
					from.path = own
					from.digest, err = digestTree(own)
				}
				if err != nil {
					return nil, fmt.Errorf("task %s: %w", t.Name, err)
				}
			}
			by[t.Workspace] = from
		}
		sources[t.Name] = from
	}
	return sources, nil
}
