package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// A journal returns what still counts, even if its last line is damaged, and stays small.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	warn := func(m string) { t.Error(m) }
	j, notes, err := openJournal(path, warn)
	if err != nil || len(notes) != 0 {
		t.Fatal(err, notes)
	}
	if _, _, err := openJournal(path, warn); err != errInUse {
		t.Errorf("a second one opens it: %v", err)
	}
	j.sync(note{Run: "r1", Agent: "a", Key: "k", State: recording.Open})
	j.sync(note{Run: "r2", Agent: "a", State: recording.Open})
	j.sync(note{Run: "r1", Agent: "a", State: recording.Completed})
	for range maxNotes + 10 {
		j.add(note{Agent: "a", Limit: "old", Every: 1})
	}
	for range 3 {
		j.add(note{Agent: "a", Limit: "l", Every: int64(time.Hour)})
	}
	j.add(note{Agent: "a", Limit: "l", Every: int64(time.Hour), Undo: true})
	j.close()
	if info, err := os.Stat(path); err != nil || info.Size() > 4096 {
		t.Errorf("%v, %d bytes", err, info.Size())
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("damage\n" + `{"agent":"a","lim`)
	f.Close()
	for range 2 {
		j, notes, err = openJournal(path, warn)
		if err != nil {
			t.Fatal(err)
		}
		j.close()
		want := []note{
			{Run: "r1", Agent: "a", Key: "k", State: recording.Completed},
			{Run: "r2", Agent: "a", State: recording.Open},
			{Agent: "a", Limit: "l", Every: int64(time.Hour)}, {Agent: "a", Limit: "l", Every: int64(time.Hour)},
		}
		if d := cmp.Diff(want, notes, cmpopts.IgnoreFields(note{}, "At")); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}
