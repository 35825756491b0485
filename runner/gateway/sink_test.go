package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestASinkDropsRatherThanWaitsAndDrainsOnClose(t *testing.T) {
	release := make(chan struct{})
	var got bytes.Buffer
	s := NewSink("slow", writer(func(b []byte) (int, error) { <-release; return got.Write(b) }))
	for i := range 3000 {
		s.OnCall(schema.CallEvent{Seq: uint64(i)})
	}
	_, dropped := s.Counts()
	if dropped < 3000-sinkQueue-1 {
		t.Errorf("%d dropped", dropped)
	}
	close(release)
	err := s.Close(context.Background())
	if want := fmt.Sprintf("audit sink slow: %d of 3000 call events were not written: the sink is too slow",
		dropped); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
	written, dropped := s.Counts()
	if written+dropped != 3000 || int(written) != strings.Count(got.String(), "\n") {
		t.Errorf("%d written, %d dropped, %d lines", written, dropped, strings.Count(got.String(), "\n"))
	}
	s.OnCall(schema.CallEvent{})
	if _, now := s.Counts(); now != dropped+1 {
		t.Errorf("a line after Close is not counted")
	}
}

func TestASinkThatNeverTakesALineIsMissingIt(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	taken := make(chan struct{})
	s := NewSink("stuck", writer(func(b []byte) (int, error) { close(taken); <-stuck; return len(b), nil }))
	s.OnCall(schema.CallEvent{})
	<-taken // none is in the queue any more
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err, want := s.Close(ctx),
		"audit sink stuck: 1 of 1 call events were not written: the sink is too slow"; err == nil ||
		err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

// A sink continues after a failed write.
func TestASinkGoesOnAfterAnError(t *testing.T) {
	var got bytes.Buffer
	n := 0
	s := newSinkOf("flaky", writer(func(b []byte) (int, error) {
		if n++; n == 2 {
			return 0, errors.New("disk full")
		}
		return got.Write(b)
	}), 8)
	for i := range 4 {
		s.OnCall(schema.CallEvent{Seq: uint64(i)})
	}
	if err := s.Close(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "1 of 4 call events were not written: disk full") {
		t.Errorf("it says %v", err)
	}
	if n := strings.Count(got.String(), "\n"); n != 3 || s.Drops() != 1 {
		t.Errorf("%d lines, %d dropped", n, s.Drops())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
