//go:build linux && amd64

package truthtest

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// How a file was opened is what the kernel made of the arguments, however soon another
// thread changes them.
func TestFlippedModes(t *testing.T) {
	asEach(t, users, func(t *testing.T, as user) {
		r := as.attack(t, t.TempDir(), "flipped-modes")
		writable := map[string]bool{}
		for name := range strings.FieldsSeq(r.out) {
			writable[name] = true
		}
		var all, wrong int
		for i := range r.events {
			e := &r.events[i]
			if _, name, ok := strings.Cut(e.Value, "/f-"); ok && e.Kind == schema.KindOpen && !e.Created {
				all++
				if e.Flags&unix.O_ACCMODE == unix.O_WRONLY != writable["f-"+name] {
					wrong++
				}
			}
		}
		if all != as.times || wrong > 0 {
			t.Errorf("%d of %d modes are wrong, want 0 of %d", wrong, all, as.times)
		}
	})
}

// The same of the namespaces of children.
func TestFlippedNamespaces(t *testing.T) {
	asEach(t, users[:1], func(t *testing.T, as user) {
		r := as.attack(t, t.TempDir(), "flipped-namespaces")
		var all, got uint64
		for i := range r.events {
			e := &r.events[i]
			if e.Kind != schema.KindNamespace {
				continue
			}
			all += e.Times()
			if e.Flags&unix.CLONE_NEWUTS != 0 {
				got += e.Times()
			}
			if e.Claimed {
				t.Error("a child's namespaces are claimed")
			}
		}
		if want := uint64(len(strings.Fields(r.out))); all != uint64(as.times) || got != want {
			t.Errorf("%d of %d children have a host name of their own, want %d of %d", got, all, want,
				as.times)
		}
	})
}

// What the kernel refused unread is not reported, a name that it cut is marked, and a file
// is deleted when its last name is.
func TestOddArguments(t *testing.T) {
	asEach(t, users, func(t *testing.T, as user) {
		dir := t.TempDir()
		r := as.attack(t, dir, "odd-arguments")
		r.claims(t)
		var seen int
		for i := range r.events {
			e := &r.events[i]
			switch {
			case e.Errno() == "EINVAL" && e.Kind == schema.KindOpen:
				if e.Flags != 0 {
					t.Errorf("the flags of a call that the kernel did not read are %#x", e.Flags)
				}
			case e.Kind == schema.KindMkdir:
				if e.Truncated&schema.FieldValue == 0 {
					t.Errorf("a name of %d bytes is not marked as cut", len(e.Value))
				}
			case e.Kind == schema.KindChmod:
				if deleted := e.Marks&schema.MarkDeleted != 0; deleted != (e.Mode == 0o602) {
					t.Errorf("mode %o: deleted is %v", e.Mode, deleted)
				}
			default:
				continue
			}
			seen++
		}
		if seen != 4 {
			t.Errorf("%d of 4 events", seen)
		}
	})
}

// A descriptor that a run passes to itself behind another control message hides nothing. See
// received_behind of TestSocketsFromElsewhere for one that comes from elsewhere.
func TestSecondControlMessage(t *testing.T) {
	need(t)
	r := record(t, t.TempDir(), nil, helper, "second-control")
	if got := r.exercised(t, "passed_descriptors"); got == nil || *got {
		t.Error("the blind spot may have been exercised")
	}
}
