package gateway

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// maxNotes is the number of notes after which a journal is rewritten with what still
// counts.
const maxNotes = 100_000

// maxNote is longer than any line of a journal, in bytes.
const maxNote = 64 << 10

// errInUse is returned by openJournal when another gateway has the file.
var errInUse = errors.New("another process uses it")

// note is a line of a journal: what became of a run, or a call that counts against a
// rate limit. Texts that clients choose may be secrets, so a note has only their marks.
type note struct {
	Run   string `json:"run,omitempty"`
	Agent string `json:"agent"`
	Key   string `json:"key,omitempty"`   // with the agent, as runs.byKey has it
	State string `json:"state,omitempty"` // of the run

	Limit string `json:"limit,omitempty"`
	Every int64  `json:"every_ns,omitzero"`
	Undo  bool   `json:"undo,omitzero"` // the last call does not count
	At    int64  `json:"at"`            // wall clock, in nanoseconds since 1970
}

// mark stands for a text in a journal: equal texts have equal marks.
func mark(text string) string {
	sum := sha256.Sum256([]byte("assay-run journal\x00" + text))
	return hex.EncodeToString(sum[:16])
}

// state is the state of the run, which is no longer open.
func (n note) state() string {
	if n.State == recording.Open {
		return recording.Incomplete
	}
	return n.State
}

// journal keeps what a gateway must know of an earlier one. Its contents survive the
// death of the process. Its methods are safe for concurrent use, and a nil
// journal keeps nothing.
type journal struct {
	path string
	warn func(string)

	mu     sync.Mutex
	file   *os.File // locked while this process lives
	notes  int
	failed bool
	torn   bool // the file may end in a part of a line
}

// openJournal opens or makes a journal, and returns what still counts of it.
func openJournal(path string, warn func(string)) (*journal, []note, error) {
	f, err := openPlain(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, nil, err
	}
	j := &journal{path: path, warn: warn, file: f}
	if !lock(f) {
		f.Close()
		return nil, nil, errInUse
	}
	kept, err := j.rewrite(time.Now())
	if err != nil {
		j.file.Close()
		return nil, nil, err
	}
	return j, kept, nil
}

// add writes a note. The first note that cannot be written causes a warning.
func (j *journal) add(n note) { j.write(n, false) }

// sync writes a note, which is on disk when sync returns.
func (j *journal) sync(n note) { j.write(n, true) }

func (j *journal) write(n note, sync bool) {
	if j == nil {
		return
	}
	now := time.Now()
	n.At = now.UnixNano()
	line, err := json.Marshal(n)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.notes++; j.notes > maxNotes && err == nil {
		_, err = j.rewrite(now)
	}
	if err == nil {
		if j.torn {
			line = append([]byte{'\n'}, line...)
		}
		_, err = j.file.Write(append(line, '\n'))
		j.torn = err != nil
	}
	if err == nil && sync {
		err = j.file.Sync()
	}
	if err != nil && !j.failed && !errors.Is(err, os.ErrClosed) {
		j.failed = true
		j.warn(fmt.Sprintf("%s cannot be written, so a restart will lose idempotency keys and rate limits: %v", j.path,
			err))
	}
}

// rewrite replaces the file by one with what still counts, which it returns.
func (j *journal) rewrite(now time.Time) (kept []note, err error) {
	if kept, err = readNotes(j.path, now); err != nil {
		return nil, err
	}
	tmp := j.path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := openPlain(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	for _, n := range kept {
		line, merr := json.Marshal(n)
		w.Write(append(line, '\n'))
		err = cmp.Or(err, merr)
	}
	lock(f)
	if err = errors.Join(err, w.Flush(), f.Sync()); err == nil {
		err = os.Rename(tmp, j.path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	j.file.Close()
	j.file, j.notes, j.torn = f, 0, false
	return kept, nil
}

func (j *journal) close() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.file.Close()
}

// openPlain opens a regular file, or makes one. It follows no symlink, and waits for no
// pipe's other end.
func openPlain(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readNotes reads what still counts: the last runs, each as it is now, and the calls
// in the windows of their limits. Lines that are torn or damaged do not count.
func readNotes(path string, now time.Time) ([]note, error) {
	f, err := openPlain(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	runs := map[string]int{} // indices of list
	var list, calls []note
	lines, long := bufio.NewReaderSize(f, maxNote), false
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF { // a torn line, or none
			break
		}
		more := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !more {
			return nil, err
		}
		if damaged := more || long; damaged {
			long = more
			continue
		}
		var n note
		switch err := json.Unmarshal(line, &n); {
		case err != nil:
		case n.Run != "":
			if i, known := runs[n.Run]; known {
				list[i].State, list[i].At = n.State, n.At
				continue
			}
			runs[n.Run] = len(list)
			list = append(list, n)
		case n.Undo:
			for i := len(calls) - 1; i >= 0; i-- {
				if calls[i].Agent == n.Agent && calls[i].Limit == n.Limit {
					calls = slices.Delete(calls, i, i+1)
					break
				}
			}
		case now.UnixNano()-n.At < n.Every:
			calls = append(calls, n)
		}
	}
	if open := list; len(open) > maxEnded { // the oldest that ended go
		most := len(open) - maxEnded
		list = slices.DeleteFunc(open, func(n note) bool {
			if n.State == recording.Open || most == 0 {
				return false
			}
			most--
			return true
		})
	}
	return append(list, calls...), nil
}
