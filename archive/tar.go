package archive

import (
	"fmt"
	"io"
)

const (
	blockSize = 512
	// maxOctal is the largest size that ustar's eleven octal digits hold.
	maxOctal = 1<<33 - 1
)

// header is the one tar header a regular member of this path and size may
// have: ustar, mode 0644, uid, gid and mtime 0, no names. size must fit in
// eleven octal digits.
func header(path string, size int64, typeflag byte) (h [blockSize]byte) {
	copy(h[0:100], path)
	copy(h[100:108], "0000644\x00")
	copy(h[108:116], "0000000\x00")
	copy(h[116:124], "0000000\x00")
	copy(h[124:136], fmt.Sprintf("%011o\x00", size))
	copy(h[136:148], "00000000000\x00")
	copy(h[148:156], "        ")
	h[156] = typeflag
	copy(h[257:265], "ustar\x0000")
	copy(h[329:337], "0000000\x00")
	copy(h[337:345], "0000000\x00")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// paxName is the path in the header of a member's PAX record, cut to fit.
func paxName(path string) string {
	const prefix = "PaxHeaders.0/"
	return prefix + path[max(0, len(path)-(maxPath-len(prefix))):]
}

// appendHeaders appends the header blocks of a member: one ustar block, and
// before it a PAX record of the size where ustar cannot say it (the ustar size
// is 0 then).
func appendHeaders(dst []byte, path string, size int64) []byte {
	if size <= maxOctal {
		h := header(path, size, '0')
		return append(dst, h[:]...)
	}
	rec := paxSize(size)
	h := header(paxName(path), int64(len(rec)), 'x')
	dst = append(dst, h[:]...)
	dst = append(dst, rec...)
	dst = append(dst, make([]byte, padding(int64(len(rec))))...)
	h = header(path, 0, '0')
	return append(dst, h[:]...)
}

// paxSize is the PAX record "LEN size=N\n", LEN counting itself.
func paxSize(size int64) string {
	body := fmt.Sprintf(" size=%d\n", size)
	n := len(body) + 2 // a size above maxOctal makes the record 18 to 27 bytes
	return fmt.Sprintf("%d%s", n, body)
}

// padding is the number of zero bytes that fill size up to a block.
func padding(size int64) int64 { return -size & (blockSize - 1) }

var zeros [2 * blockSize]byte

func writePadding(w io.Writer, size int64) error {
	_, err := w.Write(zeros[:padding(size)])
	return err
}
