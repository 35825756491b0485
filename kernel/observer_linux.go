//go:build linux && (amd64 || arm64)

package kernel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Observer observes one session. Open makes it, Read drains it on a goroutine
// of the caller's, Stop ends it, Close frees it. Report may be called at any
// time from any goroutine; Read only once.
//
// Everything it holds in the kernel hangs on file descriptors, so the kernel
// frees it all when this process dies, however it dies.
type Observer struct {
	loaded *loaded
	rd     *reader
	dec    *decoder

	foreign    bool     // Config.Foreign
	selfCgroup uint64   // cgroup id of the self-test, 0 without one
	early      [][]byte // records of others that the self-test's drain met

	mu       sync.Mutex // guards what follows
	stopped  bool
	closed   bool
	lost     []string // links found gone
	tampered []string // what else was found changed
	ended    bool     // Read has returned
	tested   [hookCount]bool
	spared   [hookCount]bool // what the host lacks would fire them
	testErr  error
	testTime time.Duration
	final    []HookStatus // counters as they stood at the end

	watch *time.Timer // looks at lost and tampered now and then

	bpf    bpfCalls
	tally  tally
	served served
}

// tally counts on the user side. Only Read writes it.
type tally struct {
	received, decoded, malformed, delivered, joined, selfTest atomic.Uint64
	repeats, finalRepeats, endpoints                          atomic.Uint64
	threads, errors, quic                                     atomic.Uint64
	kinds                                                     [kindMax]atomic.Uint64
	left, entered, ioUring                                    atomic.Uint64
	sharedFiles, claimed, memory                              atomic.Uint64
	carriers                                                  atomic.Uint64
	unfollowed                                                [256]atomic.Uint64 // requests by operation
	passed                                                    atomic.Bool        // descriptors, over a unix socket
}

// Open loads and attaches the programs for the cgroup in cfg and tests them in
// it. Errors are an [*Unavailable] when this host cannot observe. ctx bounds
// the self-test.
func Open(ctx context.Context, cfg Config) (_ *Observer, err error) {
	l, err := load(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	o := &Observer{loaded: l, rd: l.rd, dec: newDecoder(), served: served{}, foreign: cfg.Foreign}
	if cfg.SelfTest {
		o.selfTest(ctx, cfg.CgroupPath)
	}
	o.watch = time.AfterFunc(checkInterval, o.look)
	return o, nil
}

// Shared tells whether the programs are those that runs share: Report.Shared.
func (o *Observer) Shared() bool { return o.loaded.lease != nil }

// look notes what is no longer as it was, and looks again later.
func (o *Observer) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	o.check()
	o.watch.Reset(checkInterval)
}

// check notes what is no longer as it was. The caller holds mu.
func (o *Observer) check() {
	add := func(to *[]string, what ...string) {
		for _, w := range what {
			if w != "" && !slices.Contains(*to, w) {
				*to = append(*to, w)
			}
		}
	}
	add(&o.lost, o.loaded.lostLinks()...)
	add(&o.tampered, o.loaded.tampered()...)
}

// Hurry lets Read deliver what has come so far, which it otherwise does within 20 ms.
// It may be called until Close.
func (o *Observer) Hurry() { _ = o.rd.wake() }

// Stop detaches the programs, after a look at whether all are still attached,
// and lets Read deliver what is left and return. Call it when the session's
// tasks are gone: what they do later is not seen.
func (o *Observer) Stop() error {
	stopped, err := o.detach()
	if !stopped {
		return nil
	}
	var tampered []string // without mu, which Read's end needs
	if pins := o.loaded.tamperedPins(); pins != "" {
		tampered = append(tampered, pins)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tampered = append(o.tampered, tampered...)
	return err
}

// detach ends what the session gets to see, and then Read. It tells whether it was
// the first to.
func (o *Observer) detach() (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false, nil
	}
	o.stopped = true
	o.watch.Stop()
	o.check()
	return true, errors.Join(o.loaded.detach(), o.rd.flush())
}

// Close frees everything. Read must have returned. Report keeps working.
func (o *Observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if o.final == nil {
		o.final = o.hooks()
	}
	o.closed = true
	o.stopped = true
	o.watch.Stop()
	return o.loaded.close()
}
