//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// The reader of a session in which nothing happens sleeps, and the next record wakes
// it, however small it is.
func TestIdleReaderIsWoken(t *testing.T) {
	was := sleepInterval
	t.Cleanup(func() { sleepInterval = was })
	sleepInterval = time.Hour
	s := &session{t: t, path: newCgroup(t)}
	var err error
	if s.dir, err = os.Open(s.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.dir.Close() })
	o, err := Open(t.Context(), Config{CgroupPath: s.path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	came := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- o.Read(func(*Event) error {
			select {
			case came <- struct{}{}:
			default:
			}
			return nil
		}, func(uint64) {})
	}()
	asleep := &o.loaded.session(o.loaded.slot.number).Asleep
	for range 3 {
		for atomic.LoadUint64(asleep) == 0 {
			time.Sleep(time.Millisecond)
		}
		for len(came) > 0 {
			<-came
		}
		s.run(s.command("/bin/true"))
		<-came
	}
	if err := o.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
