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
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// maxNotes is the number of notes after which the journal is rewritten without outdated ones.
const maxNotes = 100_000

// maxNote limits a line of a journal, in bytes.
const maxNote = 64 << 10

// errInUse means that another gateway has the file open.
var errInUse = errors.New("another process uses it")

// note is a line of a journal: the state of a run, or a call that counts against a rate limit. Texts that clients
// choose may be secrets, so a note only has their marks.
type note struct {
	Run   string `json:"run,omitempty"`
	Agent string `json:"agent"`
	Key   string `json:"key,omitempty"`   // mark of agent and key, as in runs.byKey
	State string `json:"state,omitempty"` // of the run

	Limit string `json:"limit,omitempty"`
	Every int64  `json:"every_ns,omitzero"`
	Undo  bool   `json:"undo,omitzero"` // take back the last call
	At    int64  `json:"at"`            // wall clock, in nanoseconds since 1970
}

// mark is a digest of a text: equal texts have equal marks.
func mark(text string) string {
	sum := sha256.Sum256([]byte("assay-run journal\x00" + text))
	return hex.EncodeToString(sum[:16])
}

// state is the state of the run, which is not open any more.
func (n note) state() string {
	if n.State == recording.Open {
		return recording.Incomplete
	}
	return n.State
}

// journal keeps what a later gateway must know. Its contents survive the death of the process. Its methods are safe
// for concurrent use. A nil journal keeps nothing.
type journal struct {
	path string
	warn func(string)

	mu     sync.Mutex
	file   *os.File // locked while this process lives
	notes  int
	failed bool
	torn   bool // the file may end in a partial line
}

// openJournal opens or creates a journal, and returns the notes that still count.
func openJournal(path string, warn func(string)) (*journal, []note, error) {
	f, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
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

// add writes a note. The first failure causes a warning.
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

// rewrite replaces the file by one with the notes that still count, and returns them.
func (j *journal) rewrite(now time.Time) (kept []note, err error) {
	if kept, err = readNotes(j.path, now); err != nil {
		return nil, err
	}
	tmp := j.path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := openRegular(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND)
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

// openRegular opens or creates a regular file. It does not follow a symbolic link, and does not wait for a pipe's
// other end.
func openRegular(path string, flags int) (*os.File, error) {
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

// readNotes returns the notes that still count: the latest state of the last runs, and the calls in the windows of
// their limits. Incomplete or damaged lines do not count.
func readNotes(path string, now time.Time) ([]note, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	runs := map[string]int{} // indices into list
	var list, calls []note
	lines, long := bufio.NewReaderSize(f, maxNote), false
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF { // an incomplete line, or none
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
	if open := list; len(open) > maxEnded { // drop the oldest that have ended
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

// lock locks a file while this process has it open. It reports false if another process has locked it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK
}

// noFollow makes an open fail for a symbolic link, and not wait for a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
