//go:build unix

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that was killed during a fork has a child that keeps its lock for a moment.
func TestALockThatIsAboutToGoIsWaitedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.json")
	child, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if err := flock(child); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	time.AfterFunc(20*time.Millisecond, func() { child.Close() })
	if err := flockSoon(f); err != nil {
		t.Errorf("the child has ended: %v", err)
	}
}

// A listing that a busy host stops between its lock and its end makes no dead run live.
func TestAListingThatTakesLongIsWaitedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.json")
	listing, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer listing.Close()
	if err := unix.Flock(int(listing.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	time.AfterFunc(500*time.Millisecond, func() { listing.Close() })
	if err := flockSoon(f); err != nil {
		t.Errorf("the listing has ended: %v", err)
	}
	g, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := flockSoon(g); !errors.Is(err, errLocked) {
		t.Errorf("a recorder has the lock: %v", err)
	}
}
