package archive

import (
	"bytes"
	"context"
	"testing"

	"github.com/assay-run/assay-run/schema/redact"
)

// TestALargeMemberIsSearchedToItsEnd looks through members of more than one buffer,
// with no secret known and with one that two buffers share.
func TestALargeMemberIsSearchedToItsEnd(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	for _, c := range []struct {
		name  string
		known bool
		at    int // of the secret; -1: it is not there
		want  bool
	}{
		{"no secret is known", false, 300 << 10, false},
		{"a secret that is not there", true, -1, false},
		{"a secret across the buffer's end", true, 256<<10 - 5, true},
		{"a secret at the end", true, 1<<20 - len(secret), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := redact.New(make([]byte, 32))
			if c.known && !r.Add(redact.RuleGiven, secret) {
				t.Fatal("the secret is too short")
			}
			data := bytes.Repeat([]byte("x"), 1<<20)
			if c.at >= 0 {
				copy(data[c.at:], secret)
			}
			got, err := holds(context.Background(), r, source{path: "stdio/stdout", size: int64(len(data)), data: data})
			if err != nil || got != c.want {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
