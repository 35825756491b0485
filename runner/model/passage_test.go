package model

import (
	"bytes"
	"io"
	"testing"
)

// TestPassage writes bodies in pieces: in memory, in a file when there is no room, and with a wrong Content-Length.
// Memory that another body had must show nothing of that body.
func TestPassage(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		expect int64
		room   int64
	}{
		"of unknown length":       {3 << 20, 0, maxMemory},
		"of a known length":       {3 << 20, 3 << 20, maxMemory},
		"longer than announced":   {3 << 20, 1 << 10, maxMemory},
		"shorter than announced":  {1 << 10, 3 << 20, maxMemory},
		"larger than all memory":  {3 << 20, 0, 1 << 20},
		"announced as too large":  {3 << 20, 3 << 20, 1 << 20},
		"announced as impossible": {3 << 20, 1 << 60, maxMemory},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.left.Store(c.room)
			for _, letter := range []byte("ab") {
				p := &passage{memory: m, dir: t.TempDir(), expect: c.expect, lent: true}
				want := bytes.Repeat([]byte{letter}, c.size)
				half := *p
				for from := 0; from < c.size; from += 1000 {
					p.write(want[from:min(from+1000, c.size)])
					if from == c.size/2000*1000 {
						half = *p
					}
				}
				for _, q := range []*passage{p, &half} {
					got, err := io.ReadAll(q.reader())
					if err != nil || q.err != nil || !bytes.Equal(got, want[:q.size]) {
						t.Errorf("%d of %d bytes, %v, %v", len(got), q.size, err, q.err)
					}
					if text, err := decoded(q, ""); err != nil || !bytes.Equal(text, got) {
						t.Errorf("decoded are %d of %d bytes, %v", len(text), len(got), err)
					}
				}
				p.free()
				if left := m.left.Load(); left != c.room {
					t.Errorf("%d bytes are left, and there were %d", left, c.room)
				}
			}
		})
	}
}
