package workspace

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tracked is a file in git's index.
type tracked struct {
	mtime, ctime time.Time
	ino, size    uint32 // the low 32 bits
	id           string // git's id of the content in the index
}

// maxIndex limits the index that is read, in bytes. This is enough for about 700,000 files.
const maxIndex = 64 << 20

// readIndex reads the index of the git repository at dir. It returns the files in normal state, by path; none if the
// index cannot be read. See gitformat-index(5).
func readIndex(dir string) map[string]tracked {
	name := filepath.Join(dir, ".git")
	if text, err := os.ReadFile(name); err == nil && len(text) < 4096 { // a worktree or submodule
		place, ok := strings.CutPrefix(strings.TrimRight(string(text), "\n"), "gitdir: ")
		if !ok {
			return nil
		}
		if name = place; !filepath.IsAbs(place) {
			name = filepath.Join(dir, place)
		}
	}
	f, err := os.Open(filepath.Join(name, "index"))
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIndex {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxIndex))
	if err != nil {
		return nil
	}
	return parseIndex(data, info.ModTime())
}

// parseIndex parses an index that was written at a time. An index that does not end with its SHA-1 uses other
// digests, or is damaged. A file that changed as late as the index was written is skipped, since a later change may
// be invisible.
func parseIndex(data []byte, written time.Time) map[string]tracked {
	const head, fixed = 12, 62
	if len(data) < head+sha1.Size || string(data[:4]) != "DIRC" {
		return nil
	}
	sum := sha1.Sum(data[:len(data)-sha1.Size])
	if !bytes.Equal(sum[:], data[len(data)-sha1.Size:]) {
		return nil
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return nil
	}
	files := map[string]tracked{}
	last := ""
	rest := data[head : len(data)-sha1.Size]
	for range count {
		if len(rest) < fixed+2 {
			return nil
		}
		number := func(at int) uint32 { return binary.BigEndian.Uint32(rest[at:]) }
		moment := func(at int) time.Time { return time.Unix(int64(number(at)), int64(number(at+4))) }
		t := tracked{ctime: moment(0), mtime: moment(8), ino: number(20), size: number(36),
			id: hex.EncodeToString(rest[40:60])}
		mode, flags, size := number(24), binary.BigEndian.Uint16(rest[60:]), fixed
		const assumed, extended, stage, intended, skipped = 0x8000, 0x4000, 0x3000, 0x2000, 0x4000
		normal := flags&(assumed|stage) == 0
		if flags&extended != 0 {
			more := binary.BigEndian.Uint16(rest[fixed:])
			normal, size = normal && more&(intended|skipped) == 0, size+2
		}
		strip := 0
		if version == 4 {
			n, used := varint(rest[size:])
			if used == 0 || n > len(last) {
				return nil
			}
			strip, size = n, size+used
		}
		end := bytes.IndexByte(rest[size:], 0)
		if end < 0 {
			return nil
		}
		name := string(rest[size : size+end])
		if size += end + 1; version == 4 {
			name = last[:len(last)-strip] + name
		} else {
			size = (size-1)/8*8 + 8
		}
		if size > len(rest) {
			return nil
		}
		rest, last = rest[size:], name
		if normal && mode&0o170000 == 0o100000 && t.mtime.Before(written) {
			files[name] = t
		}
	}
	if bytes.HasPrefix(rest, []byte("link")) { // a split index: this is only its newest part
		return nil
	}
	return files
}

// varint reads a number in the offset encoding of git's pack files. used is 0 if there is none.
func varint(b []byte) (n, used int) {
	for i, c := range b {
		n |= int(c & 0x7f)
		switch {
		case c&0x80 == 0:
			return n, i + 1
		case i == 3:
			return 0, 0
		}
		n = (n + 1) << 7
	}
	return 0, 0
}
