//go:build linux

package carrier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type work struct {
	N int `json:"n"`
}

func pair(t *testing.T) (*Hub, *Line, func(Listening)) {
	t.Helper()
	dir := t.TempDir()
	began := time.Now()
	s, err := Serve(filepath.Join(dir, "nats"), Opening{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h, err := NewHub(t.Context(), nc, "suite", Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLine(nc, "w", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Join("suite")
	t.Logf("started in %v", time.Since(began))
	return h, l, func(to Listening) {
		stop, err := h.Listen(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
}

func TestWorkIsTakenOnceAndToldOf(t *testing.T) {
	h, l, listen := pair(t)
	told := make(chan Message, 10)
	listen(Listening{Told: func(m Message) { told <- m; m.Done() }, Fresh: func() {},
		Asked: func(q Question) any { return q.From + string(q.Data) }})
	var numbers []uint64
	for i := range 6 {
		n, err := h.Publish(t.Context(), string(rune('a'+i/2)), work{i / 2}) // all twice: kept once
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	if taken, err := h.Taken(t.Context(), numbers[0]); err != nil || taken {
		t.Errorf("before: taken %v, %v", taken, err)
	}
	for i := range 3 {
		var got work
		if err := l.Next(t.Context(), &got); err != nil || got.N != i {
			t.Fatalf("it took %+v, %v", got, err)
		}
	}
	if taken, err := h.Taken(t.Context(), numbers[4]); err != nil || !taken {
		t.Errorf("after: taken %v, %v", taken, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Next(ctx, &work{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without work: %v", err)
	}
	if err := l.Tell(t.Context(), "k", work{7}); err != nil {
		t.Fatal(err)
	}
	if got := <-told; string(got.Data) != `{"n":7}` || got.From != "w" {
		t.Errorf("%s told %s", got.From, got.Data)
	}
	var answer string
	if err := l.Ask(t.Context(), 5, &answer); err != nil || answer != "w5" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

func TestABundleIsCarriedInParts(t *testing.T) {
	h, l, _ := pair(t)
	for _, size := range []int64{0, 1, partBytes, partBytes + 1, 2*partBytes + 17} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * i >> 7)
		}
		if err := l.Store(t.Context(), "b", bytes.NewReader(want), size); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := h.Fetch(t.Context(), "b", size, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes of %d came, %v", got.Len(), size, err)
		}
		if err := h.Forget(t.Context(), "b", size); err != nil {
			t.Error(err)
		}
		if err := h.Fetch(t.Context(), "b", size, io.Discard); !errors.Is(err, ErrNoBundle) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// What a server lost is made again, and that is told.
func TestLostStreamsAreMadeAgain(t *testing.T) {
	h, l, listen := pair(t)
	fresh, told := make(chan bool, 1), make(chan Message, 1)
	listen(Listening{Told: func(m Message) { told <- m; m.Done() }, Fresh: func() { fresh <- true },
		Asked: func(Question) any { return nil }})
	if err := h.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := make(chan error, 1)
	go func() { took <- l.Next(t.Context(), &work{}) }()
	<-fresh
	if _, err := h.Publish(t.Context(), "a", work{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	if err := l.Tell(t.Context(), "k", work{7}); err != nil {
		t.Fatal(err)
	}
	<-told
}
