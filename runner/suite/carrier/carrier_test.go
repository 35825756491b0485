//go:build linux

package carrier

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type work struct {
	N int `json:"n"`
}

func pair(t *testing.T) (*Hub, *Line, func(func(Message), func(string))) {
	t.Helper()
	dir := t.TempDir()
	began := time.Now()
	s, err := Serve(filepath.Join(dir, "nats"))
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
	nc, err := s.Connect("coordinator")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	h, err := NewHub(t.Context(), nc, "suite", Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLine(t.Context(), nc, "suite")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(began))
	return h, l, func(told func(Message), beat func(string)) {
		stop, err := h.Listen(nc, told, beat)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
}

func TestWorkIsTakenOnceAndToldOf(t *testing.T) {
	h, l, listen := pair(t)
	told, beats := make(chan string, 10), make(chan string, 10)
	listen(func(m Message) { told <- string(m.Data); m.Done() }, func(token string) { beats <- token })
	var numbers []uint64
	for i := range 3 {
		n, err := h.Publish(t.Context(), work{i})
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
	if taken, err := h.Taken(t.Context(), numbers[2]); err != nil || !taken {
		t.Errorf("after: taken %v, %v", taken, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Next(ctx, &work{}); err != context.DeadlineExceeded {
		t.Errorf("without work: %v", err)
	}
	if err := l.Tell(t.Context(), work{7}); err != nil {
		t.Fatal(err)
	}
	if err := l.Beat("token"); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != `{"n":7}` {
		t.Errorf("it told %s", got)
	}
	if got := <-beats; got != "token" {
		t.Errorf("it beat %s", got)
	}
}

func TestABundleIsCarried(t *testing.T) {
	h, l, _ := pair(t)
	want := bytes.Repeat([]byte("bundle"), 1<<18)
	if err := l.Store(t.Context(), "b", bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := h.Fetch(t.Context(), "b", &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes came, %v", got.Len(), err)
	}
	if err := h.Forget(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := h.Fetch(t.Context(), "b", io.Discard); err == nil {
		t.Error("it is still there")
	}
}
