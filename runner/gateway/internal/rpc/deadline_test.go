package rpc

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// writes keeps what each write wrote.
type writes struct {
	net.Conn
	got [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.got = append(w.got, bytes.Clone(p))
	return len(p), nil
}

func (w *writes) SetWriteDeadline(time.Time) error { return nil }

func TestACorkedConnectionWritesOnce(t *testing.T) {
	w := &writes{}
	c := &timedConn{Conn: w, limits: &Limits{}}
	c.Write([]byte("at once"))
	c.cork()
	for range 3 {
		c.Write([]byte("abc"))
	}
	if err := c.uncork(); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), corkSize+1)
	c.cork()
	c.Write([]byte("before"))
	c.Write(large)
	c.Write([]byte("after"))
	if err := c.uncork(); err != nil {
		t.Fatal(err)
	}
	want := [][]byte{[]byte("at once"), []byte("abcabcabc"), []byte("before"), large, []byte("after")}
	if len(w.got) != len(want) {
		t.Fatalf("%d writes, want %d", len(w.got), len(want))
	}
	for i := range want {
		if !bytes.Equal(w.got[i], want[i]) {
			t.Errorf("write %d: %.20q, want %.20q", i, w.got[i], want[i])
		}
	}
}
