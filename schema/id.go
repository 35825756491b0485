package schema

import (
	"crypto/rand"

	"github.com/oklog/ulid/v2"
)

// NewID makes an id that no other has: a ULID of now, whose 80 other bits are random.
func NewID() string { return ulid.MustNew(ulid.Now(), rand.Reader).String() }
