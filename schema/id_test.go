package schema

import (
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

func TestAnIDIsAULIDOfNow(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		before := ulid.Timestamp(time.Now())
		text := NewID()
		after := ulid.Timestamp(time.Now())
		id, err := ulid.ParseStrict(text)
		if err != nil || id.String() != text {
			t.Fatalf("%q is read as the ULID %v: %v", text, id, err)
		}
		if id.Time() < before || id.Time() > after {
			t.Errorf("%q is of %d ms, want %d to %d", text, id.Time(), before, after)
		}
		random := string(id.Entropy())
		if seen[random] {
			t.Errorf("%q has the random part of an earlier id", text)
		}
		seen[random] = true
	}
}
