package gateway

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestASinkDropsRatherThanWaitsAndDrainsOnClose(t *testing.T) {
	release := make(chan struct{})
	var got bytes.Buffer
	s := NewSink("slow", writer(func(b []byte) (int, error) { <-release; return got.Write(b) }))
	for i := range 3000 {
		s.offer(fmt.Appendf(nil, "%d\n", i))
	}
	_, dropped := s.Counts()
	if dropped < 3000-sinkQueue-1 {
		t.Errorf("%d dropped", dropped)
	}
	close(release)
	err := s.Close(context.Background())
	if want := fmt.Sprintf("audit sink slow: %d of 3000 call events were not written: the sink is too slow", dropped); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
	written, dropped := s.Counts()
	if written+dropped != 3000 || int(written) != strings.Count(got.String(), "\n") {
		t.Errorf("%d written, %d dropped, %d lines", written, dropped, strings.Count(got.String(), "\n"))
	}
	s.offer([]byte("late\n"))
	if _, now := s.Counts(); now != dropped+1 {
		t.Errorf("a line after Close is not counted")
	}
}

func TestASinkThatNeverTakesALineIsMissingIt(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	taken := make(chan struct{})
	s := NewSink("stuck", writer(func(b []byte) (int, error) { close(taken); <-stuck; return len(b), nil }))
	s.offer([]byte("1\n"))
	<-taken // none is in the queue any more
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err, want := s.Close(ctx), "audit sink stuck: 1 of 1 call events were not written: the sink is too slow"; err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
