//go:build linux

package ledger

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
)

func write3(t *testing.T, dir string) string {
	t.Helper()
	l, lines, cut, err := Open(dir)
	if err != nil || len(lines) != 0 || cut != 0 {
		t.Fatalf("a new ledger has %d lines, %d bytes cut, %v", len(lines), cut, err)
	}
	a := Attempt{Task: "t", Agent: "a", Attempt: 1}
	if err := errors.Join(
		l.Append(Line{Kind: Created, Suite: "s"}, Line{Kind: Opened, Attempt: a, Try: 1, Token: "x"}),
		l.Append(Line{Kind: Verdict, Attempt: a, Try: 1, Token: "x",
			Verdict: &schema.SuiteTry{Verdict: schema.SuitePassed}}),
		l.Close()); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, Name)
}

func TestALedgerIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	write3(t, dir)
	l, lines, _, err := Open(dir)
	if err != nil || len(lines) != 3 {
		t.Fatalf("it has %d lines, %v", len(lines), err)
	}
	defer l.Close()
	if lines[2].Verdict.Verdict != schema.SuitePassed || lines[2].Attempt.String() != "t/a/1" || lines[1].Token != "x" {
		t.Errorf("its lines are %+v", lines)
	}
	if err := l.Append(Line{Kind: Refused}); err != nil {
		t.Error(err)
	}
	if lines, err := Read(dir); err != nil || len(lines) != 4 || lines[3].Seq != 3 {
		t.Errorf("beside its writer it reads %+v, %v", lines, err)
	}
}

func TestOneProcessWrites(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := Open(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("the second is told %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l, _, _, err = Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// A ledger is cut after each byte, as a killed process or a power failure may leave it. Every complete line must be
// kept, and new lines can be appended.
func TestATornLineIsCutOff(t *testing.T) {
	whole, err := os.ReadFile(write3(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 1 + n%7 { // not at each byte, since each Open syncs
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Name), whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		kept := strings.Count(string(whole[:n]), "\n")
		l, lines, cut, err := Open(dir)
		if err != nil || len(lines) != kept || cut != int64(n-strings.LastIndex(string(whole[:n]), "\n")-1) {
			t.Fatalf("cut at %d: %d lines, %d bytes cut, %v", n, len(lines), cut, err)
		}
		next := Line{Kind: Refused}
		if kept == 0 {
			next.Kind = Created
		}
		if err := errors.Join(l.Append(next), l.Close()); err != nil {
			t.Fatal(err)
		}
		if lines, err := Read(dir); err != nil || len(lines) != kept+1 {
			t.Fatalf("cut at %d and written on: %d lines, %v", n, len(lines), err)
		}
	}
}

func TestADamagedLedgerIsRefused(t *testing.T) {
	whole, err := os.ReadFile(write3(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for name, c := range map[string]struct {
		text string
		want error
		says string
	}{
		"a line is missing":      {lines[0] + lines[2], ErrDamaged, "line 2: it has the number 2, want 1"},
		"a line is there twice":  {lines[0] + lines[1] + lines[1], ErrDamaged, "line 3"},
		"bytes are zero":         {lines[0] + strings.Repeat("\x00", 40) + "\n" + lines[2], ErrDamaged, "line 2"},
		"a kind is not known":    {lines[0] + `{"seq":1,"kind":"undone"}` + "\n", ErrDamaged, `"undone"`},
		"a verdict says nothing": {lines[0] + `{"seq":1,"kind":"verdict"}` + "\n", ErrDamaged, "line 2"},
		"the format is newer": {strings.ReplaceAll(string(whole), "ledger.v0", "ledger.v1"), ErrNewer,
			"ledger.v1"},
		"it is something else": {"hello\n", ErrDamaged, "line 1"},
		"it is another JSON of ours": {`{"schema":"assay.runner.run.v0"}` + "\n", ErrDamaged,
			"not the first line of a ledger"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Name), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := Open(dir); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if l, _, _, err := Open(dir); errors.Is(err, ErrLocked) {
			t.Errorf("%s: the lock is still held", name)
		} else if err == nil {
			l.Close()
		}
		if now, _ := os.ReadFile(filepath.Join(dir, Name)); string(now) != c.text {
			t.Errorf("%s: the ledger was changed", name)
		}
	}
}

func TestAWriterThatFailedStaysBroken(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.file.Close()
	first := l.Append(Line{Kind: Created})
	if first == nil || l.Append(Line{Kind: Created}) != first { //nolint:errorlint // the same error
		t.Errorf("it fails with %v and then goes on", first)
	}
	l.lock.Close()
}

// Setting the clock back changes nothing: lines are ordered by their numbers.
func TestAClockThatIsSetBackChangesNothing(t *testing.T) {
	dir := t.TempDir()
	write3(t, dir)
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Now().Add(-time.Hour) }
	if err := errors.Join(l.Append(Line{Kind: Refused}), l.Close()); err != nil {
		t.Fatal(err)
	}
	l, lines, cut, err := Open(dir)
	if err != nil || cut != 0 || len(lines) != 4 || lines[3].At >= lines[2].At {
		t.Fatalf("it has %+v, %d bytes cut, %v", lines, cut, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestALedgerThatSomebodyElseWritesIsDamaged writes to the ledger as an agent could that runs as the same user.
func TestALedgerThatSomebodyElseWritesIsDamaged(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(Line{Kind: Created, Suite: "s"}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, Name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":1,"at":"","kind":"ended"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Line{Kind: Ended}); !errors.Is(err, ErrDamaged) {
		t.Errorf("it was %v", err)
	}
}

// A line that somebody edits is noticed when the ledger is read, and by its writer, also if all digests fit again.
func TestAnEditIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := write3(t, dir)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), `"passed"`, `"failed"`, 1)
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "line 3: its digest") {
		t.Errorf("an edited line: %v", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	var forged []byte // the same length, and all digests fit
	last := ""
	for line := range strings.Lines(edited) {
		plain, _ := unchained([]byte(strings.TrimSuffix(line, "\n")))
		last = chain(last, plain)
		forged = append(append(append(append(forged, plain[:len(plain)-1]...), chainKey...), last...), chainEnd+"\n"...)
	}
	if err := os.WriteFile(path, forged, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err != nil {
		t.Fatalf("the forged ledger is read with %v", err)
	}
	if err := l.Check(); !errors.Is(err, ErrDamaged) {
		t.Errorf("another ledger in its place: %v", err)
	}
}

// A line that cannot be written changes nothing, and the next one can.
func TestALineThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	write3(t, dir)
	l, _, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, v := range map[string]*schema.SuiteTry{"not a number": {Cost: new(math.NaN())},
		"too long": {Reason: strings.Repeat("a", maxLine)}} {
		if err := l.Append(Line{Kind: Verdict, Verdict: v}); !errors.Is(err, ErrUnwritable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.Append(Line{Kind: Verdict, Verdict: &schema.SuiteTry{Reason: "caf\xe9"}}); err != nil {
		t.Fatal(err)
	}
	lines, err := Read(dir)
	if err != nil || len(lines) != 4 || lines[3].Verdict.Reason != `caf\xe9` {
		t.Errorf("it has %+v, %v", lines, err)
	}
}
