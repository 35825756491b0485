package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// A journal that cannot be written anew, since the disk is full, stays as it was.
func TestJournalOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, err := openJournal(path, func(m string) { t.Error(m) })
	if err != nil {
		t.Fatal(err)
	}
	j.sync(note{Run: "r1", Agent: "a", Key: "k", State: recording.Completed})
	j.close()
	before, err := os.ReadFile(path)
	if err != nil || len(before) == 0 {
		t.Fatal(err, before)
	}
	if err := os.Symlink("/dev/full", path+".new"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path, nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk it opens: %v", err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("it was replaced: %v, %v", info, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%v: %s, want %s", err, after, before)
	}
}
