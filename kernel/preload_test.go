//go:build linux && (amd64 || arm64)

package kernel

import (
	"testing"
	"time"
)

// Nothing is pinned before somebody is there who would free it.
func TestPinsWhenGuarded(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	made := make(chan struct{})
	WaitForGuard(made)
	t.Cleanup(func() { guarded.Store(nil) })
	loads := make(chan error, 1)
	go func() {
		s, err := p.open(256 << 10)
		if err == nil {
			s.close()
		}
		loads <- err
	}()
	select {
	case err := <-loads:
		t.Fatalf("pinned already: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if inPlace() {
		t.Errorf("%s is there already", p.dir())
	}
	close(made)
	if err := <-loads; err != nil {
		t.Fatal(err)
	}
	if !inPlace() {
		t.Errorf("%s is not there", p.dir())
	}
	p.remove()
}
