package rpc

import (
	"io"
	"sync"
)

// outbox sends messages to one client. Whoever sends writes, and takes along
// what others add meanwhile: one message costs no other goroutine, many cost
// few writes. A client that does not read makes senders wait, and is cut off
// when the wire gives up.
type outbox struct {
	wire wire
	max  int

	mu      sync.Mutex
	room    sync.Cond
	buf     []byte
	spare   []byte
	writing bool
	err     error
}

func newOutbox(w wire, max int) *outbox {
	o := &outbox{wire: w, max: max}
	o.room.L = &o.mu
	return o
}

// send queues one message without its newline, and writes it unless another
// sender does.
func (o *outbox) send(msg []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) > o.max && o.err == nil {
		o.room.Wait()
	}
	if o.err != nil {
		return o.err
	}
	o.buf = append(o.buf, msg...)
	o.buf = append(o.buf, '\n')
	if o.writing {
		return nil
	}
	o.writing = true
	for len(o.buf) > 0 && o.err == nil {
		out := o.buf
		o.buf, o.spare = o.spare[:0], nil
		o.mu.Unlock()
		err := o.wire.write(out)
		o.mu.Lock()
		if cap(out) <= 256<<10 {
			o.spare = out
		}
		if err != nil && o.err == nil {
			o.fail(err)
		}
		o.room.Broadcast()
	}
	o.writing = false
	o.room.Broadcast()
	return o.err
}

// fail drops what waits and refuses the rest. o.mu is held.
func (o *outbox) fail(err error) {
	o.err = err
	o.buf = nil
	o.wire.close()
	o.room.Broadcast()
}

// flush waits until everything sent is written, then refuses the rest.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.writing {
		o.room.Wait()
	}
	if o.err == nil {
		o.err = io.ErrClosedPipe
	}
}
