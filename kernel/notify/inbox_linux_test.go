//go:build amd64 || arm64

package notify

import (
	"errors"
	"testing"
)

// TestInboxKeepsOrder takes from another goroutine everything that was put, in order, and then the end.
func TestInboxKeepsOrder(t *testing.T) {
	b, end := newInbox(), errors.New("end")
	go func() {
		for id := range uint64(1000) {
			b.put(notification{id: id})
		}
		b.end(end)
	}()
	for id := range uint64(1000) {
		if n, err := b.take(); err != nil || n.id != id {
			t.Fatalf("took %d, %v; want %d", n.id, err, id)
		}
	}
	if _, err := b.take(); !errors.Is(err, end) {
		t.Errorf("after the last: %v", err)
	}
}
