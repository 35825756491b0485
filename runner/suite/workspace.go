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

	"github.com/assay-run/assay-run/runner/workspace"
)

// copyWorkspace makes the directory to, with the contents of a directory or a tar file.
func copyWorkspace(ctx context.Context, from, to string) error {
	if from == "" {
		return os.Mkdir(to, 0o755)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		in, err := os.Open(from)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := unpack(in, to); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		return nil
	}
	return workspace.Copy(ctx, from, to)
}

// copyChecked makes the directory to, with the contents of a directory or a tar file that has the digest.
func copyChecked(ctx context.Context, from, digest, to string) error {
	if err := copyWorkspace(ctx, from, to); err != nil || from == "" {
		return err
	}
	compared := from
	if info, err := os.Stat(from); err != nil {
		return err
	} else if info.IsDir() {
		compared = to
	}
	got, err := DigestTree(compared)
	if err == nil && got != digest {
		err = otherWorkspace(from)
	}
	return err
}

// unpack makes the directory to from a tar file, whose names stay below it.
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
			return u.end()
		}
		if err == nil {
			err = u.one(h, r)
		}
		if err != nil {
			return err
		}
	}
}

// unpacker makes files below a directory.
type unpacker struct {
	root  *os.Root
	dirs  []string
	modes map[string]fs.FileMode // of dirs, which they get at the end: until then we write in them
}

func (u *unpacker) one(h *tar.Header, r io.Reader) error {
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
	}
	return fmt.Errorf("%s is no regular file, directory or link; a workspace has nothing else", h.Name)
}

func (u *unpacker) end() error {
	for _, dir := range slices.Backward(u.dirs) {
		if err := u.root.Chmod(dir, u.modes[dir]); err != nil {
			return err
		}
	}
	return nil
}

// copySparse copies so many bytes to a new file, in which long runs of zeros are holes.
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

// sentTree is the name of a workspace, a directory or a tar file, in what is sent of it.
const sentTree = "tree"

// sentName is the name by which the workspace with the digest is sent.
func sentName(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// pack writes a workspace as a compressed tar file. The error says so if it has not the digest.
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
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return packOne(t, path, filepath.Join(sentTree, name), info)
	})
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return err
	}
	if got, err := DigestTree(from); err != nil || got != digest {
		return errors.Join(err, otherWorkspace(from))
	}
	return nil
}

func otherWorkspace(path string) error {
	return fmt.Errorf("the workspace %s is not what it was when the suite began", path)
}

func packOne(t *tar.Writer, path, name string, info fs.FileInfo) error {
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

// unpackSent makes the directory to from what pack wrote: the workspace is sentTree in it.
func unpackSent(in io.Reader, to string) error {
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	return unpack(z, to)
}

// DigestTree is the digest of a file's bytes, or of a directory: the names, kinds, permissions and contents below it.
// Times and owners are not in it. A file that is neither regular, a directory nor a link is an error.
func DigestTree(root string) (string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return digestEntry(sum, path, name, info)
	})
	if err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// digestEntry adds one file. Each part has its length before it, so that no two trees give the same bytes.
func digestEntry(sum hash.Hash, path, name string, info fs.FileInfo) error {
	put := func(s string) {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		io.WriteString(sum, s)
	}
	put(name)
	put(info.Mode().String())
	switch {
	case info.IsDir():
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		put(target)
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file, directory or link; a workspace has nothing else", path)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	contents := sha256.New()
	if _, err := io.Copy(contents, in); err != nil {
		return err
	}
	sum.Write(contents.Sum(nil))
	return nil
}
