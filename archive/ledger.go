package archive

import (
	"crypto/sha256"
	"hash"
)

// markBytes is how exactly a ledger tells where bytes were changed.
const markBytes = 256 << 10

// ledger remembers what was written to a file: its length, and the running digest
// at every markBytes. It takes 32 bytes for each.
type ledger struct {
	h     hash.Hash
	size  int64
	marks [][sha256.Size]byte
}

func newLedger() *ledger { return &ledger{h: sha256.New()} }

// Write never fails.
func (l *ledger) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(int64(len(b)), markBytes-l.size%markBytes)]
		l.h.Write(part)
		if l.size += int64(len(part)); l.size%markBytes == 0 {
			l.marks = append(l.marks, l.sum())
		}
		b = b[len(part):]
	}
	return n, nil
}

func (l *ledger) sum() (sum [sha256.Size]byte) {
	l.h.Sum(sum[:0])
	return sum
}

// differs is where the bytes of another ledger may begin to differ: the start of the
// markBytes with the first one that does. It is -1 where they are the same.
func (l *ledger) differs(other *ledger) int64 {
	for i := range min(len(l.marks), len(other.marks)) {
		if l.marks[i] != other.marks[i] {
			return int64(i) * markBytes
		}
	}
	if l.size == other.size && l.sum() == other.sum() {
		return -1
	}
	return int64(min(len(l.marks), len(other.marks))) * markBytes
}
