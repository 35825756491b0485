package archive

import (
	"fmt"
	"io"
	"strconv"
)

const (
	blockSize = 512
	// maxOctal is the largest size that ustar's eleven octal digits hold.
	maxOctal = 1<<33 - 1
)

// header returns the only tar header that a member with this path and size may have: ustar, mode 0644, uid, gid and
// mtime 0, no names. size is at most maxOctal.
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

// maxName is the size of the path in a ustar header.
const maxName = 100

// appendHeaders appends the header blocks of a member. If the path or size does not fit into a ustar header, a PAX
// record with it comes first, and the ustar header has the path cut or the size 0.
func appendHeaders(dst []byte, path string, size int64) []byte {
	var pax string
	name, ustarSize := path, size
	if len(path) > maxName {
		pax = paxRecord("path", path)
		name = path[:maxName]
	}
	if size > maxOctal {
		pax += paxRecord("size", strconv.FormatInt(size, 10))
		ustarSize = 0
	}
	if pax != "" {
		h := header(paxName, int64(len(pax)), 'x')
		dst = append(dst, h[:]...)
		dst = append(dst, pax...)
		dst = append(dst, zeros[:padding(int64(len(pax)))]...)
	}
	h := header(name, ustarSize, '0')
	return append(dst, h[:]...)
}

// paxName is the path in the header of every PAX record.
const paxName = "PaxHeaders.0/member"

// paxRecord returns "LEN key=value\n", where LEN is the length of the whole record.
func paxRecord(key, value string) string {
	body := " " + key + "=" + value + "\n"
	n := len(body)
	for {
		s := strconv.Itoa(n) + body
		if len(s) == n {
			return s
		}
		n = len(s)
	}
}

// padding returns the number of zero bytes after a member of this size.
func padding(size int64) int64 { return -size & (blockSize - 1) }

var zeros [2 * blockSize]byte

func writePadding(w io.Writer, size int64) error {
	_, err := w.Write(zeros[:padding(size)])
	return err
}
