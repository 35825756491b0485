package schema

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// NewID makes an id that no other has: a ULID (github.com/ulid/spec) of now, which is the
// time in milliseconds, 48 bits, and 80 random bits.
func NewID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16)
	rand.Read(id[6:]) // never fails
	high, low := binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])
	var text [26]byte // of 5 bits each, the last first
	for i := range text {
		text[len(text)-1-i] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[low&31]
		high, low = high>>5, low>>5|high<<59
	}
	return string(text[:])
}
