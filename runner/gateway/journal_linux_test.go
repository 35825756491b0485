package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// A journal that cannot be rewritten because the disk is full stays as it was.
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
	if _, err := openWithoutRoom(t, path); !errors.Is(err, unix.EFBIG) {
		t.Errorf("on a full disk it opens: %v", err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("it was replaced: %v, %v", info, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%v: %s, want %s", err, after, before)
	}
}

// openWithoutRoom opens a journal while no byte can be written to any file, as on a full disk.
func openWithoutRoom(t *testing.T, path string) (*journal, error) {
	t.Helper()
	var room unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: room.Max}); err != nil {
		t.Fatal(err)
	}
	j, _, err := openJournal(path, nil)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	return j, err
}
