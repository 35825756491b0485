package rpc

import (
	"bytes"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// stuckWire writes nothing until it is released.
type stuckWire struct {
	out     bytes.Buffer
	release chan struct{}
}

func (w *stuckWire) write(b []byte) error {
	<-w.release
	_, err := w.out.Write(b)
	return err
}
func (w *stuckWire) read() ([]byte, error) { return nil, net.ErrClosed }
func (w *stuckWire) socket() *net.UnixConn { return nil }
func (w *stuckWire) finish(string)         {}
func (w *stuckWire) close()                {}

func TestSendersWaitForAClientThatDoesNotRead(t *testing.T) {
	w := &stuckWire{release: make(chan struct{})}
	o := newOutbox(w, 1000)
	var sent atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { o.send(make([]byte, 99)); sent.Add(1) })
	}
	held := func() int { o.mu.Lock(); defer o.mu.Unlock(); return len(o.buf) }
	for held() <= 1000 {
		runtime.Gosched()
	}
	if n := held(); n > 1100 {
		t.Errorf("%d bytes wait, 1,000 may", n)
	}
	if n := sent.Load(); n > 11 {
		t.Errorf("%d senders went on", n)
	}
	close(w.release)
	wg.Wait()
	if n := w.out.Len(); n != 100*100 {
		t.Errorf("%d bytes were written", n)
	}
}
