//go:build linux

// Package ledger keeps what a suite has decided: an append-only file of lines, each on disk before its writer goes on.
// It is the only truth about a suite. What it does not say did not happen.
//
// A line that was being written when its writer died is torn: it is cut off when the ledger is opened the next time.
// Any other damage is an error that names the line, since what follows it may be false.
//
// One process writes at a time: it holds a lock on the directory from Open to Close.
package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Name is the ledger's name in the suite's directory.
const Name = "ledger.ndjson"

// Format is the schema that the first line names.
const Format = "assay.suite.ledger.v0"

// maxLine bounds a line in bytes: a verdict with a thousand suspicions.
const maxLine = 16 << 20

// Kinds of lines.
const (
	Begun   = "suite"   // the first line
	Opened  = "opened"  // a try may be published from now on
	Began   = "began"   // a worker runs it
	Ended   = "ended"   // a worker told how it ended
	Verdict = "verdict" // nothing about the try changes any more
	Refused = "refused" // a message about a try that is not open, and why
	Edited  = "edited"  // the suite changed: the definitions that hold from now on
)

// Attempt names one attempt of an agent at a task, from 1 on.
type Attempt struct {
	Task    string `json:"task,omitzero"`
	Agent   string `json:"agent,omitzero"`
	Attempt int    `json:"attempt,omitzero"`
}

// String is the attempt's id, as in results.json.
func (a Attempt) String() string { return fmt.Sprintf("%s/%s/%d", a.Task, a.Agent, a.Attempt) }

// Line is one line.
type Line struct {
	Schema string `json:"schema,omitzero"` // Format, in the first line alone
	Seq    uint64 `json:"seq"`
	At     string `json:"at"` // wall clock, RFC 3339 in UTC; nothing is ordered by it
	Kind   string `json:"kind"`
	Suite  string `json:"suite,omitzero"`
	Attempt
	Try      int               `json:"try,omitzero"`
	Token    string            `json:"token,omitzero"`    // of the try, random
	Identity string            `json:"identity,omitzero"` // of the attempt, when it was opened
	Worker   string            `json:"worker,omitzero"`
	Host     *schema.SuiteHost `json:"host,omitzero"`    // of Began
	Verdict  *schema.SuiteTry  `json:"verdict,omitzero"` // of Verdict
	Why      string            `json:"why,omitzero"`     // of Refused
	// Definitions are digests of the fields of the suite's tasks and agents; of Begun and Edited.
	Definitions map[string]map[string]string `json:"definitions,omitzero"`
	// Attempts is how many the suite has; of Begun and Edited.
	Attempts int `json:"attempts,omitzero"`
	// Inputs is a directory with what the try is given, below that of the suite; of Opened.
	Inputs string `json:"inputs,omitzero"`
}

var (
	// ErrLocked is wrapped by the error of Open while somebody else writes.
	ErrLocked = errors.New("another process runs this suite")
	// ErrDamaged is wrapped by the errors about a ledger that cannot be believed.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrNewer is wrapped by the error about a ledger of another format.
	ErrNewer = errors.New("the ledger has a format that this version does not know")
)

// Ledger writes lines. Its methods are for one goroutine.
type Ledger struct {
	lock *os.File // held from Open to Close
	file *os.File
	next uint64
	size int64 // of the file
	err  error // a writer that failed stays broken
	now  func() time.Time
}

// Open locks the directory, which exists, and returns its ledger with the lines that it has. cut is the length of a
// torn last line that was cut off, in bytes.
func Open(dir string) (l *Ledger, lines []Line, cut int64, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, nil, 0, err
	}
	l = &Ledger{lock: lock, now: time.Now}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	path := filepath.Join(dir, Name)
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return l, nil, 0, err
	}
	lines, whole, err := read(path, l.file)
	if err != nil {
		return l, nil, 0, err
	}
	size, err := l.file.Seek(0, io.SeekEnd)
	if err != nil {
		return l, nil, 0, err
	}
	if cut = size - whole; cut > 0 {
		if err := l.file.Truncate(whole); err != nil {
			return l, nil, 0, fmt.Errorf("cut the torn last line of %s: %w", path, err)
		}
	}
	l.next, l.size = uint64(len(lines)), whole
	return l, lines, cut, errors.Join(l.file.Sync(), syncDir(dir))
}

// Read returns the lines of the ledger in dir, also while somebody writes it. A torn last line is left out.
func Read(dir string) ([]Line, error) {
	path := filepath.Join(dir, Name)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, _, err := read(path, f)
	return lines, err
}

// read returns the whole lines of a file, and how many bytes they take.
func read(path string, r *os.File) (lines []Line, whole int64, err error) {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: line %d: %s", ErrDamaged, path, len(lines)+1, fmt.Sprintf(format, args...))
	}
	if info, err := r.Stat(); err == nil {
		const usual = 350 // bytes of a line
		lines = make([]Line, 0, min(info.Size(), 1<<30)/usual+1)
	}
	for in := bufio.NewReaderSize(r, 64<<10); ; {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			text, err = longLine(text, in)
		}
		if errors.Is(err, io.EOF) {
			return lines, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		end := len(text) - 1
		text = text[:end]
		if len(text) > maxLine {
			return nil, 0, damaged("%d bytes long", len(text))
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, 0, damaged("%v", err)
		}
		switch {
		case len(lines) == 0 && line.Schema != Format:
			if !strings.HasPrefix(line.Schema, "assay.suite.ledger.") {
				return nil, 0, damaged("it is no ledger's first line")
			}
			return nil, 0, fmt.Errorf("%w: %s has %q; use the version of assay-suite that wrote it", ErrNewer, path,
				line.Schema)
		case line.Seq != uint64(len(lines)):
			return nil, 0, damaged("it has the number %d, want %d", line.Seq, len(lines))
		case !known[line.Kind] || (line.Kind == Begun) != (len(lines) == 0) || line.Kind == Verdict &&
			line.Verdict == nil:
			return nil, 0, damaged("it cannot be a %q", line.Kind)
		}
		lines, whole = append(lines, line), whole+int64(end)+1
	}
}

// longLine is a line that is longer than the buffer of in, and begins with start. It ends soon after maxLine.
func longLine(start []byte, in *bufio.Reader) ([]byte, error) {
	all := slices.Clone(start)
	for {
		more, err := in.ReadSlice('\n')
		all = append(all, more...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return all, err
		}
		if len(all) > maxLine {
			return append(all, '\n'), nil
		}
	}
}

var known = map[string]bool{Begun: true, Opened: true, Began: true, Ended: true, Verdict: true, Refused: true,
	Edited: true}

// Append writes lines, with their numbers and the time, and returns when they are on disk. After an error every later
// call fails too.
func (l *Ledger) Append(lines ...Line) error {
	if l.err != nil || len(lines) == 0 {
		return l.err
	}
	var text []byte
	at := schema.Wall(l.now())
	for i := range lines {
		lines[i].Seq, lines[i].At, lines[i].Schema = l.next+uint64(i), at, ""
		if lines[i].Seq == 0 {
			lines[i].Schema = Format
		}
		line, err := json.Marshal(lines[i], json.Deterministic(true))
		if err != nil {
			return l.fail(err)
		}
		text = append(append(text, line...), '\n')
	}
	switch info, err := l.file.Stat(); {
	case err != nil:
		return l.fail(err)
	case info.Size() != l.size:
		return l.fail(fmt.Errorf("%w: somebody else changed it: it has %d bytes, want %d", ErrDamaged, info.Size(),
			l.size))
	}
	if _, err := l.file.Write(text); err != nil {
		return l.fail(err)
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(err)
	}
	l.next, l.size = l.next+uint64(len(lines)), l.size+int64(len(text))
	return nil
}

func (l *Ledger) fail(err error) error {
	l.err = fmt.Errorf("write %s: %w", l.file.Name(), err)
	return l.err
}

// Close releases the lock.
func (l *Ledger) Close() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.lock.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
