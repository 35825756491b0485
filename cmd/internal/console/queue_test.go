package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestNobodyReadsAQueue writes far more than a pipe holds before anybody reads it.
func TestNobodyReadsAQueue(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	q := NewQueue(w)
	say := &Messages{W: q, Name: "test"}
	var want strings.Builder
	for i := range 10_000 { // 230 KB, and a pipe holds 64
		say.Info("message number %d", i)
		fmt.Fprintf(&want, "test: message number %d\n", i)
	}
	go func() {
		q.Flush()
		w.Close()
	}()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%d bytes came, want %d, in order", len(got), want.Len())
	}
}

// TestAQueueIsBounded drops what nobody reads, once much of it waits.
func TestAQueueIsBounded(t *testing.T) {
	var stuck sync.Mutex
	stuck.Lock()
	var out bytes.Buffer
	q := NewQueue(writerFunc(func(p []byte) (int, error) {
		stuck.Lock()
		defer stuck.Unlock()
		return out.Write(p)
	}))
	for range 100 {
		_, _ = q.Write(make([]byte, maxWaiting/10))
	}
	stuck.Unlock()
	q.Flush()
	if out.Len() < maxWaiting*9/10 || out.Len() > 2*maxWaiting {
		t.Errorf("%d bytes came of %d", out.Len(), 10*maxWaiting)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
