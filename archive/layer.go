package archive

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/assay-run/assay-run/schema"
)

// batchBytes is the size at which a batch of kernel lines is written.
const batchBytes = 64 << 10

// layer appends one NDJSON file. Its lock orders the lines and stamps seq.
type layer struct {
	folder  *folder
	flusher *flusher
	runFile *runFile
	path    string
	batched bool // lines are written in batches
	final   bool // may use the reserved space: the lifecycle

	mu      sync.Mutex
	file    *os.File // nil until the first line; open until the spool is sealed
	tree    tree     // over the lines in file
	ledger  *ledger  // of the bytes in file
	buf     []byte   // whole lines that are not yet written
	pending uint64   // lines in buf
	seq     uint64   // of the next line
	size    int64    // bytes of whole lines in file
	written uint64
	dropped uint64
	dirty   bool
	closed  bool
	err     error // sticky
}

func newLayer(path string, folder *folder, flusher *flusher, runFile *runFile) *layer {
	return &layer{folder: folder, flusher: flusher, runFile: runFile, path: path, ledger: newLedger(),
		batched: path == schema.KernelPath, final: path == schema.EventsPath}
}

// lose counts n lines as dropped. It also marks the spool on disk, unless the layer is closed, since the count is lost
// if this process dies.
func (l *layer) lose(n uint64) {
	if l.dropped += n; n > 0 && !l.closed {
		l.runFile.markLossy()
	}
}

// accepts returns nil if n more lines may be appended. Otherwise it counts them as dropped.
func (l *layer) accepts(n uint64) error {
	if l.err == nil && l.closed {
		l.err = fmt.Errorf("append to %s: %w", l.path, os.ErrClosed)
	}
	if l.err != nil {
		l.lose(n)
	}
	return l.err
}

// endLine ends the line that begins at an offset of the buffer. The error says why the bytes are not a line.
func (l *layer) endLine(at int) error {
	line := l.buf[at:]
	if len(line) == 0 || len(line) >= MaxLine || bytes.IndexByte(line, '\n') >= 0 {
		return fmt.Errorf("a line of %d bytes (1 to %d without a newline allowed)", len(line), MaxLine-1)
	}
	l.buf = append(l.buf, '\n')
	return nil
}

func (l *layer) append(encode func(dst []byte, seq uint64) []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.accepts(1); err != nil {
		return err
	}
	start := len(l.buf)
	l.buf = encode(l.buf, l.seq)
	if err := l.endLine(start); err != nil {
		l.buf = l.buf[:start]
		l.lose(1)
		return fmt.Errorf("append to %s: %w was dropped", l.path, err)
	}
	l.seq++
	l.pending++
	if l.batched && len(l.buf) < batchBytes {
		if l.pending == 1 {
			l.flusher.touched()
		}
		return nil
	}
	return l.flush()
}

// flush writes buf. After an error the file is cut back to its last whole
// line, and what was not written is counted as dropped. l.mu is held.
func (l *layer) flush() error {
	if len(l.buf) == 0 || l.err != nil {
		return l.err
	}
	n, err := l.write(l.buf)
	lines := l.pending
	if err != nil {
		whole := bytes.LastIndexByte(l.buf[:n], '\n') + 1
		lines = uint64(bytes.Count(l.buf[:whole], []byte{'\n'}))
		if l.file != nil && whole != n {
			l.file.Truncate(l.size + int64(whole))
		}
		n = whole
		l.err = fmt.Errorf("write %s: %w", l.path, err)
	}
	l.size += int64(n)
	l.tree.addLines(l.buf[:n])
	l.ledger.Write(l.buf[:n])
	l.written += lines
	l.lose(l.pending - lines)
	l.pending = 0
	l.buf = l.buf[:0]
	if cap(l.buf) > 4*batchBytes {
		l.buf = nil
	}
	if n > 0 && !l.dirty {
		l.dirty = true
		l.flusher.touched()
	}
	return l.err
}

// write appends b to the file in one write(2), or in two if the disk was full and the layer may use the reserve.
func (l *layer) write(b []byte) (n int, err error) {
	if !l.final && l.folder.full.Load() {
		return 0, errReserved
	}
	if n, err = l.tryWrite(b); !isFull(err) {
		return n, err
	}
	if !l.final || !l.folder.freeReserve() {
		return n, err
	}
	more, err := l.tryWrite(b[n:])
	return n + more, err
}

func (l *layer) tryWrite(b []byte) (int, error) {
	if err := l.begin(); err != nil {
		return 0, err
	}
	return l.file.Write(b)
}

// begin creates the layer's file. l.mu is held.
func (l *layer) begin() error {
	if l.file != nil {
		return nil
	}
	f, err := l.folder.openFile(l.path, os.O_APPEND|os.O_EXCL)
	if err != nil {
		return err
	}
	l.file = f
	return nil
}

func (l *layer) sync() error {
	l.mu.Lock()
	err := l.flush()
	f, dirty := l.file, l.dirty
	l.dirty = false
	l.mu.Unlock()
	if f == nil || !dirty {
		return err
	}
	// Outside the lock, so that others can append meanwhile.
	if serr := datasync(f); serr != nil && !errors.Is(serr, os.ErrClosed) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.err = fmt.Errorf("sync %s: %w", l.path, serr)
		}
		return l.err
	}
	return err
}

func (l *layer) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.flush()
	l.closed = true
	l.buf = nil
	return err
}

// failed writes what is batched, and returns the error after which the layer stayed broken.
func (l *layer) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flush()
}

// state is the tree over what is written.
func (l *layer) state() schema.LayerTree {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tree.state()
}

// errReserved is returned by all writes after the disk was full, except those for the end of the run.
var errReserved = fmt.Errorf("the space left is kept for the end of the run: %w", syscall.ENOSPC)

// memberFile writes captured bytes to the spool.
type memberFile struct {
	folder  *folder
	flusher *flusher
	path    string

	mu     sync.Mutex // Write against sync and Close
	file   *os.File   // open until the spool is sealed
	ledger *ledger    // of what is in file
	dirty  bool
	err    error // sticky
}

func (m *memberFile) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return 0, m.err
	}
	var n int
	err := error(errReserved)
	if !m.folder.full.Load() {
		n, err = m.file.Write(b)
	}
	m.ledger.Write(b[:max(n, 0)])
	if n > 0 && !m.dirty {
		m.dirty = true
		m.flusher.touched()
	}
	if err != nil {
		m.err = fmt.Errorf("write %s: %w", m.path, err)
	}
	return n, m.err
}

// Close ends writing; a second Close does nothing. The file stays open, so that it can be sealed even
// if its name is removed.
func (m *memberFile) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = fmt.Errorf("write %s: %w", m.path, os.ErrClosed)
	}
	return nil
}

// failed returns the error after which the member stayed broken.
func (m *memberFile) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(m.err, os.ErrClosed) {
		return nil
	}
	return m.err
}

// state is the digest of what is written.
func (m *memberFile) state() schema.MemberBytes {
	m.mu.Lock()
	defer m.mu.Unlock()
	return schema.MemberBytes{Bytes: m.ledger.size, SHA256: digest(m.ledger.sum())}
}

func (m *memberFile) sync() error {
	m.mu.Lock()
	dirty := m.dirty
	m.dirty = false
	m.mu.Unlock()
	if !dirty {
		return nil
	}
	if err := datasync(m.file); err != nil {
		return fmt.Errorf("sync %s: %w", m.path, err)
	}
	return nil
}

// markBytes is how exactly a ledger finds the first changed byte.
const markBytes = 256 << 10

// ledger remembers the length of what was written to a file, and the running digest after every markBytes.
type ledger struct {
	h     hash.Hash
	size  int64
	marks [][sha256.Size]byte
}

func newLedger() *ledger { return &ledger{h: sha256.New()} }

// Write never fails.
func (l *ledger) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part := b[:min(int64(len(b)), markBytes-l.size%markBytes)]
		l.h.Write(part)
		if l.size += int64(len(part)); l.size%markBytes == 0 {
			l.marks = append(l.marks, l.sum())
		}
		b = b[len(part):]
	}
	return n, nil
}

func (l *ledger) sum() (sum [sha256.Size]byte) {
	l.h.Sum(sum[:0])
	return sum
}

// differs returns the start of the first block of markBytes in which two ledgers differ, or -1 if they are equal.
func (l *ledger) differs(other *ledger) int64 {
	for i := range min(len(l.marks), len(other.marks)) {
		if l.marks[i] != other.marks[i] {
			return int64(i) * markBytes
		}
	}
	if l.size == other.size && l.sum() == other.sum() {
		return -1
	}
	return int64(min(len(l.marks), len(other.marks))) * markBytes
}

// lossyMode are the permissions of run.json after lines were dropped. Such a mark can be set on a full disk.
const lossyMode fs.FileMode = 0o700

// resume opens the layer's file again and reads what it holds.
func (l *layer) resume(scan *layerScan) error {
	f, err := openRegular(layerFile(l.folder.dir, l.path), os.O_RDWR|os.O_APPEND)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.file = f
	if scan.torn > 0 {
		l.dropped = 1
		if err := f.Truncate(scan.size); err != nil {
			return err
		}
	}
	if err := eachLine(f.Name(), scan.size, func(line []byte) {
		line = append(line[:len(line):len(line)], '\n')
		l.tree.addLines(line)
		l.ledger.Write(line)
	}); err != nil {
		return err
	}
	l.seq, l.written, l.size = scan.lines, scan.lines, scan.size
	return nil
}

func layerFile(dir, path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
