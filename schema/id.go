package schema

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// idDigits are those of Crockford's base 32.
const idDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// NewID makes an id that no other has: a ULID (github.com/ulid/spec), 48 bits of
// the time in milliseconds and 80 random bits, in 26 characters that sort by the time.
func NewID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(id[6:]) // it never fails
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	var text [26]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = idDigits[low&31]
		high, low = high>>5, low>>5|high<<59
	}
	return string(text[:])
}
