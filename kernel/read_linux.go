//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval bounds how long a record waits in a ring that is too empty to
// wake the reader. A reader to whom nothing has come in sleepAfter polls waits to be
// woken, by the next record: there may be a hundred idle sessions.
const (
	pollInterval = 20 * time.Millisecond
	sleepAfter   = 5
)

// sleepInterval bounds how long a record waits that was on its way when the reader
// fell asleep, and so did not wake it.
var sleepInterval = 500 * time.Millisecond

// readerNice is the nice value of the thread that empties the ring.
const readerNice = -10

// Read hands every event to fn until Stop has been called and everything
// observed before it has been delivered, the slots' repeats last. It returns
// early with fn's error, or with one of the ring's. The Event is reused: see there.
//
// Whenever nothing has come for 20 ms, idle is called with the time, nanoseconds
// of CLOCK_BOOTTIME: whoever holds events back for their order can let them go.
//
// It keeps to one thread and asks for a higher priority for it, so that a busy
// session cannot starve its own reader; without the right to, it goes on as it is.
func (o *Observer) Read(fn func(*Event) error, idle func(now uint64)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if was, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && unix.Setpriority(unix.PRIO_PROCESS, 0, readerNice) == nil {
		defer unix.Setpriority(unix.PRIO_PROCESS, 0, 20-was) // the system call returns 20 minus nice
	}
	for _, raw := range o.early {
		if err := o.one(raw, fn); err != nil {
			return err
		}
	}
	o.early = nil
	one := func(raw []byte) error { return o.one(raw, fn) }
	var received uint64
	for quiet := 0; ; {
		ending := o.rd.stop.Load() // before the last look at the rings
		if err := o.rd.drain(one); err != nil {
			return err
		}
		if ending {
			err := errors.Join(o.unfinished(0, fn), o.readRepeats(fn), o.readEndpoints(fn))
			o.mu.Lock()
			o.ended = true
			o.mu.Unlock()
			return err
		}
		if n := o.tally.received.Load(); n != received {
			quiet, received = 0, n
		}
		interval := pollInterval
		if quiet++; quiet > sleepAfter {
			interval = sleepInterval
			o.loaded.slot.sleep()
			if err := o.rd.drain(one); err != nil { // what came before it could wake us
				return err
			}
		}
		more, err := o.rd.wait(interval)
		if err != nil {
			return err
		}
		if !more {
			if err := o.rd.drain(one); err != nil { // what did not wake us
				return err
			}
			idle(bootTime())
		}
	}
}

// one decodes and delivers one raw record.
func (o *Observer) one(raw []byte, fn func(*Event) error) error {
	o.tally.received.Add(1)
	e, err := o.dec.decode(raw)
	if err != nil {
		o.tally.malformed.Add(1)
		return nil
	}
	o.tally.decoded.Add(1)
	if e == nil {
		o.tally.joined.Add(1)
		return o.unfinished(maxRequests, fn)
	}
	return o.deliver(e, fn)
}

// unfinished delivers io_uring requests whose end is not expected any more, but
// for the newest keep.
func (o *Observer) unfinished(keep int, fn func(*Event) error) error {
	for e := o.dec.abandoned(keep); e != nil; e = o.dec.abandoned(keep) {
		o.tally.joined.Add(^uint64(0)) // its record is an event after all
		if err := o.deliver(e, fn); err != nil {
			return err
		}
	}
	return nil
}

// deliver hands over an event unless it is the self-test's.
func (o *Observer) deliver(e *Event, fn func(*Event) error) error {
	if e.Repeat {
		o.tally.repeats.Add(e.Count)
	}
	if o.isSelfTest(e) {
		o.tally.selfTest.Add(1)
		return nil
	}
	switch e.Kind {
	case KindFork:
		if e.Thread {
			o.tally.threads.Add(1)
		}
		if e.SharesFiles {
			o.tally.sharedFiles.Add(1)
		}
	case KindOpen:
		if e.Errno == 0 && e.Flags&3 != 0 && bytes.HasPrefix(e.Path, []byte("/proc/")) && bytes.HasSuffix(e.Path, []byte("/mem")) {
			o.tally.memory.Add(1)
		}
	case KindAccept, KindConnect:
		o.served.see(e)
	case KindTraffic:
		if e.Proto == unix.IPPROTO_UDP && e.Remote.Port() == 443 {
			o.tally.quic.Add(1)
		}
	case KindBPF, KindMmap:
		o.bpf.see(e)
	case KindLeftCgroup:
		o.tally.left.Add(1)
	case KindJoinedCgroup:
		o.tally.entered.Add(1)
	case KindNewSocket:
		if e.Carrier() {
			o.tally.carriers.Add(1)
		}
	case KindIOUringOp:
		if unfollowed(e.Args[0]) {
			o.tally.unfollowed[e.Args[0]&255].Add(1)
		}
	}
	if e.Claimed {
		o.tally.claimed.Add(1)
	}
	if e.Syscall == uringSyscall {
		o.tally.ioUring.Add(1)
	}
	if e.Errno != 0 {
		o.tally.errors.Add(1)
	}
	o.tally.kinds[e.Kind].Add(1)
	o.tally.delivered.Add(1)
	return fn(e)
}

func (o *Observer) isSelfTest(e *Event) bool {
	if o.selfCgroup == 0 {
		return false
	}
	return e.CgroupID == o.selfCgroup || e.Kind == KindFork && e.ChildCgroupID == o.selfCgroup
}

// readRepeats delivers what the coalescing slots still count.
func (o *Observer) readRepeats(fn func(*Event) error) error {
	return o.loaded.slot.eachRepeat(func(i uint32, s *repeatSlot) error {
		e, err := o.dec.replay(i, s.Id, s.Last, [5]uint64{s.Count, s.First, s.Last, s.Bytes, s.BytesIn})
		if err != nil {
			o.tally.malformed.Add(1)
			o.tally.received.Add(1)
			return nil
		}
		o.tally.finalRepeats.Add(1)
		return o.deliver(e, fn)
	})
}

func bootTime() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Nano())
}
