//go:build linux && amd64

package truthtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// Arguments that were cut have a blind spot of their own, and none of a path's.
func TestCutArgumentsAreABlindSpotOfTheirOwn(t *testing.T) {
	need(t)
	for _, c := range []struct {
		words   string
		cut     bool
		reasons []string
	}{{"1000", false, nil}, {"60000", true, []string{schema.CodeBlindSpot}}} {
		r := record(t, t.TempDir(), nil, "/bin/sh", "-c", "exec /bin/true $(seq "+c.words+")")
		r.claims(t, c.reasons...)
		var marked bool
		for i := range r.events {
			if e := &r.events[i]; e.Kind == schema.KindExec && e.Value == "/usr/bin/true" {
				marked = e.Truncated == schema.FieldArgv
			}
		}
		if marked != c.cut {
			t.Errorf("%s words: the event says that argv was cut: %v", c.words, marked)
		}
		if got := blindSpot(t, r,
			"arguments beyond 128 KiB and environment names beyond 8 KiB of an execution"); got != c.cut {
			t.Errorf("%s words: the blind spot of arguments is exercised: %v", c.words, got)
		}
		if blindSpot(t, r, "the rest of paths longer than 4,096 bytes or 256 components") {
			t.Errorf("%s words: the blind spot of paths is exercised", c.words)
		}
	}
}

// What happens to one object by several ways to it has one name, beside the one that
// each call was given.
func TestEventsThroughALinkedDirectoryCanBeJoined(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, "/bin/sh", "-ec",
		`mkdir run var; ln -s ../run var/run; echo > var/run/x; chmod 600 var/run/x; mv var/run/x run/y; rm var/run/y
mkdir here; echo > victim; ln -s ../run/sub here/link; mkdir run/sub; echo > run/victim; echo > here/victim; rm here/link/../victim; cat here/victim`)
	r.claims(t)
	var got []string
	for i := range r.events {
		e := &r.events[i]
		switch e.Kind {
		case schema.KindChmod, schema.KindRename, schema.KindUnlink:
			s := say(e, dir)
			if e.Given != "" {
				s += ", given " + e.Given
			}
			got = append(got, s)
		}
	}
	want := []string{"chmod W/run/x, given var/run/x", "rename W/run/x -> W/run/y, given var/run/x",
		"unlink W/run/y, given var/run/y",
		"unlink W/run/victim, given here/link/../victim"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r.sum(dir, "openat W/run/x") != 1 {
		t.Error("the file was not made under the name that it has later")
	}
}
