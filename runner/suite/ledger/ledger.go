//go:build linux

// Package ledger keeps what a suite has decided, in an append-only file of JSON lines. Each line is on disk before its
// writer goes on. The ledger is the only source of truth about a suite: what it does not say did not happen.
//
// Each line ends with a digest of itself and of all lines before it, so that a line that somebody edits, removes or
// adds is noticed. If somebody computes all digests again, only a writer that has the ledger open notices.
//
// If the writer dies in the middle of a line, the next Open cuts off this torn line. Any other damage is an error that
// names the line, since nothing after it can be trusted.
//
// One process writes at a time: it locks the directory from Open to Close.
package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// Name is the name of the ledger's file in the suite's directory.
const Name = "ledger.ndjson"

// format is the schema in the first line.
const format = "assay.suite.ledger.v0"

// maxLine is the longest line in bytes: room for a verdict with a thousand suspicions.
const maxLine = 16 << 20

// Kinds of lines.
const (
	Created = "suite"   // the first line
	Opened  = "opened"  // a try may be given to a worker from now on
	Began   = "began"   // a worker began the try
	Ended   = "ended"   // a worker reported how the try ended
	Verdict = "verdict" // the try is decided, for good
	Refused = "refused" // a worker's message was refused, and why
	Edited  = "edited"  // the suite was edited: these are the new definitions
	Back    = "back"    // a worker that was lost goes on
)

// Attempt names one attempt of an agent at a task. The first one has the number 1.
type Attempt struct {
	Task    string `json:"task,omitzero"`
	Agent   string `json:"agent,omitzero"`
	Attempt int    `json:"attempt,omitzero"`
}

// String is the attempt's id, as in results.json.
func (a Attempt) String() string { return fmt.Sprintf("%s/%s/%d", a.Task, a.Agent, a.Attempt) }

// Line is one line. Append sets Schema, Seq and At.
type Line struct {
	Schema string `json:"schema,omitzero"` // format; only in the first line
	Seq    uint64 `json:"seq"`
	At     string `json:"at"` // wall clock, RFC 3339 in UTC; only for people, nothing is ordered by it
	Kind   string `json:"kind"`
	Suite  string `json:"suite,omitzero"`
	Attempt
	Try      int               `json:"try,omitzero"`
	Token    string            `json:"token,omitzero"`    // random, of the try; in a Created line of the suite
	Identity string            `json:"identity,omitzero"` // of the attempt, when it was opened
	Worker   string            `json:"worker,omitzero"`
	Host     *schema.SuiteHost `json:"host,omitzero"`     // only in Began lines
	Instance string            `json:"instance,omitzero"` // random, of the worker's process; in Began and Back lines
	Stopped  bool              `json:"stopped,omitzero"`  // the worker was stopped; only in Back lines
	Verdict  *schema.SuiteTry  `json:"verdict,omitzero"`  // only in Verdict lines
	Why      string            `json:"why,omitzero"`      // only in Refused lines
	// Definitions are digests of the fields of the suite's tasks and agents; only in Created and Edited lines.
	Definitions map[string]map[string]string `json:"definitions,omitzero"`
	// Attempts is the number of attempts of the suite; only in Created and Edited lines.
	Attempts int `json:"attempts,omitzero"`
	// Inputs is the directory with the inputs of the try, relative to the suite's; only in Opened and Verdict lines.
	Inputs string `json:"inputs,omitzero"`
}

var (
	// ErrLocked is wrapped by the error of Open while another process has the ledger open.
	ErrLocked = errors.New("another process runs this suite")
	// ErrDamaged is wrapped by the errors about a ledger that cannot be trusted.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrNewer is wrapped by the error about a ledger in an unknown format.
	ErrNewer = errors.New("the ledger has a format that this version does not know")
)

// Ledger appends lines. It is not safe for concurrent use.
type Ledger struct {
	lock *os.File // see lockDir
	file *os.File
	next uint64 // Seq of the next line
	last string // the digest of the last line; empty while there is none
	size int64  // of the file, if nobody else writes to it
	err  error  // of the first write that failed
	now  func() time.Time
}

// Open locks an existing directory, and returns its ledger with the lines in it. cut is how many bytes of a torn last
// line were cut off.
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
	lines, whole, last, err := read(path, l.file)
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
	l.next, l.size, l.last = uint64(len(lines)), whole, last
	return l, lines, cut, errors.Join(l.file.Sync(), syncDir(dir))
}

// Read returns the lines of the ledger in dir, even while another process writes it. It ignores a torn last line.
func Read(dir string) ([]Line, error) {
	path := filepath.Join(dir, Name)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, _, _, err := read(path, f)
	return lines, err
}

// read returns the complete lines of a file, their length in bytes, and the digest of the last one.
func read(path string, r *os.File) (lines []Line, whole int64, last string, err error) {
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
			return lines, whole, last, nil
		}
		if err != nil {
			return nil, 0, "", err
		}
		end := len(text) - 1
		text = text[:end]
		if len(text) > maxLine {
			return nil, 0, "", damaged("it is longer than %d bytes", maxLine)
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, 0, "", damaged("%v", err)
		}
		switch {
		case len(lines) == 0 && line.Schema != format:
			if !strings.HasPrefix(line.Schema, "assay.suite.ledger.") {
				return nil, 0, "", damaged("it is not the first line of a ledger")
			}
			return nil, 0, "", fmt.Errorf("%w: %s has %q: use the version of assay-suite that wrote it", ErrNewer, path,
				line.Schema)
		case line.Seq != uint64(len(lines)):
			return nil, 0, "", damaged("it has the number %d, want %d", line.Seq, len(lines))
		case !known[line.Kind] || (line.Kind == Created) != (len(lines) == 0) || line.Kind == Verdict &&
			line.Verdict == nil:
			return nil, 0, "", damaged("a line of the kind %q cannot be here", line.Kind)
		}
		plain, got := unchained(text)
		if last = chain(last, plain); got != last {
			return nil, 0, "", damaged("its digest does not fit: somebody changed it or a line before it")
		}
		lines, whole = append(lines, line), whole+int64(end)+1
	}
}

// longLine reads the rest of a line that begins with start and is longer than the buffer of in. It stops soon after
// maxLine.
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

var known = map[string]bool{Created: true, Opened: true, Began: true, Ended: true, Verdict: true, Refused: true,
	Edited: true, Back: true}

// The end of each line: its digest in hexadecimal digits.
const (
	chainKey = `,"digest":"`
	chainEnd = `"}`
)

// chain is the digest of a line without its digest. last is that of the line before.
func chain(last string, plain []byte) string {
	sum := sha256.New()
	io.WriteString(sum, last)
	sum.Write(plain)
	return hex.EncodeToString(sum.Sum(nil))
}

// unchained splits a line into the line without its digest, and the digest. The digest is empty if there is none.
func unchained(text []byte) (plain []byte, digest string) {
	at := len(text) - len(chainKey) - 2*sha256.Size - len(chainEnd)
	if at < 0 || !bytes.HasPrefix(text[at:], []byte(chainKey)) || !bytes.HasSuffix(text, []byte(chainEnd)) {
		return text, ""
	}
	return append(slices.Clone(text[:at]), '}'), string(text[at+len(chainKey) : len(text)-len(chainEnd)])
}

// ErrUnwritable is wrapped by the error of Append about a line that cannot be written. Nothing was written then, and
// later calls do not fail for it.
var ErrUnwritable = errors.New("the line cannot be written to the ledger")

// Append writes lines and returns when they are on disk. After an error every later call fails too, except after
// [ErrUnwritable].
func (l *Ledger) Append(lines ...Line) error {
	if l.err != nil || len(lines) == 0 {
		return l.err
	}
	var text []byte
	at, last := schema.Wall(l.now()), l.last
	for i := range lines {
		lines[i].Seq, lines[i].At, lines[i].Schema = l.next+uint64(i), at, ""
		if lines[i].Seq == 0 {
			lines[i].Schema = format
		}
		line, err := json.Marshal(lines[i], json.Deterministic(true), schema.ReadableJSON)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
		last = chain(last, line)
		line = append(append(append(line[:len(line)-1], chainKey...), last...), chainEnd...)
		if len(line) > maxLine {
			return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrUnwritable, len(line), maxLine)
		}
		text = append(append(text, line...), '\n')
	}
	switch info, err := l.file.Stat(); {
	case err != nil:
		return l.fail(err)
	case info.Size() != l.size:
		return l.fail(fmt.Errorf("%w: another process changed it: it has %d bytes, want %d", ErrDamaged, info.Size(),
			l.size))
	}
	if _, err := l.file.Write(text); err != nil {
		return l.fail(err)
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(err)
	}
	l.next, l.size, l.last = l.next+uint64(len(lines)), l.size+int64(len(text)), last
	return nil
}

// Check reads the file again. It is an error if it does not have the lines that were read and appended, as when another
// process wrote to it.
func (l *Ledger) Check() error {
	if l.err != nil {
		return l.err
	}
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	lines, whole, last, err := read(l.file.Name(), l.file)
	if err == nil && (uint64(len(lines)) != l.next || whole != l.size || last != l.last) {
		err = fmt.Errorf("%w: another process changed %s", ErrDamaged, l.file.Name())
	}
	return err
}

func (l *Ledger) fail(err error) error {
	l.err = fmt.Errorf("write %s: %w", l.file.Name(), err)
	return l.err
}

// Close closes the file and releases the lock.
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
