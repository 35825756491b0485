package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// Whatever is at a journal's path, the gateway neither hangs nor writes elsewhere.
func TestJournalAmongForeignFiles(t *testing.T) {
	warn := func(m string) { t.Error(m) }
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal")

	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path, warn); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	os.Remove(path)

	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openJournal(path, warn); err == nil {
		t.Error("a symlink is followed")
	}
	os.Remove(path)

	if err := os.Symlink(victim, path+".new"); err != nil {
		t.Fatal(err)
	}
	j, _, err := openJournal(path, warn)
	if err != nil {
		t.Fatal(err)
	}
	j.close()
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Errorf("the file behind a symlink is now %q, %v", got, err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the journal: %v, %v", info, err)
	}
}

// An overlong line does not count, and hides no later line.
func TestJournalLongLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	note := func(id string) string {
		return `{"run":"` + id + `","agent":"a","state":"` + recording.Open + `","at":1}` + "\n"
	}
	text := note("r1") + strings.Repeat("x", maxNote-1) + "\n" + strings.Repeat("x", 3*maxNote) + note("glued") +
		note("r2") + strings.Repeat("x", 2*maxNote)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	j, notes, err := openJournal(path, func(m string) { t.Error(m) })
	if err != nil {
		t.Fatal(err)
	}
	j.close()
	if len(notes) != 2 || notes[0].Run != "r1" || notes[1].Run != "r2" {
		t.Errorf("%+v", notes)
	}
}

// After a write that was cut short by a full disk, the next note is on its own line.
func TestJournalAfterTornWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	warned := 0
	j, _, err := openJournal(path, func(string) { warned++ })
	if err != nil {
		t.Fatal(err)
	}
	j.file.WriteString(`{"run":"torn`)
	file := j.file
	if j.file, err = os.Open(os.DevNull); err != nil { // every write fails
		t.Fatal(err)
	}
	j.add(note{Run: "lost", State: recording.Open})
	j.file.Close()
	j.file = file
	j.add(note{Run: "kept", State: recording.Open})
	j.close()
	j, notes, err := openJournal(path, func(m string) { t.Error(m) })
	if err != nil {
		t.Fatal(err)
	}
	j.close()
	if warned != 1 || len(notes) != 1 || notes[0].Run != "kept" {
		t.Errorf("%d warnings, %+v", warned, notes)
	}
}
