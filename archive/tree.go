package archive

import (
	"bytes"
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/assay-run/assay-run/schema"
)

// tree is a growing Merkle tree (RFC 6962, section 2.1) over the lines of a layer. The zero value is empty.
type tree struct {
	lines uint64
	peaks []tlog.Hash // roots of the complete subtrees, the largest first: one for each bit that is set in lines
}

// add adds a line by its leaf hash.
func (t *tree) add(leaf tlog.Hash) {
	for n := t.lines; n&1 == 1; n >>= 1 {
		last := len(t.peaks) - 1
		leaf = tlog.NodeHash(t.peaks[last], leaf)
		t.peaks = t.peaks[:last]
	}
	t.peaks = append(t.peaks, leaf)
	t.lines++
}

// addLines adds the lines in b, each with its newline.
func (t *tree) addLines(b []byte) {
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		t.add(tlog.RecordHash(b[:end]))
		b = b[end+1:]
	}
}

// root returns the root over all lines so far.
func (t *tree) root() tlog.Hash {
	if t.lines == 0 {
		return emptyRoot
	}
	root := t.peaks[len(t.peaks)-1]
	for i := len(t.peaks) - 2; i >= 0; i-- {
		root = tlog.NodeHash(t.peaks[i], root)
	}
	return root
}

// emptyRoot is the root over no lines.
var emptyRoot = tlog.Hash(sha256.Sum256(nil))

func (t *tree) state() schema.LayerTree {
	return schema.LayerTree{Lines: t.lines, Root: digest(t.root())}
}
