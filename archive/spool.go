package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Names that are not members. They start with a dot.
const (
	newPrefix   = ".new-"    // a spool being created
	donePrefix  = ".sealed-" // a sealed spool being removed
	reserveName = ".reserve"
)

// Spool is the directory of a live run. It satisfies the runner's Recorder and is safe for concurrent use. End it with
// either [Spool.Seal] or [Spool.Close]. If the process dies before, [Recover] seals it.
type Spool struct {
	run       schema.Run
	file      *runFile
	folder    *folder
	flusher   *flusher
	layers    map[string]*layer
	documents *documentFiles   // mu guards it
	redactor  *redact.Redactor // of Redact; nil if nothing is secret
	out       *Output          // of SealTo; nil means the run's output

	mu         sync.Mutex // guards what follows
	members    map[string]*memberFile
	closed     bool
	checkpoint func(schema.Checkpoint) // of OnCheckpoint

	disk    sync.WaitGroup // for OnDisk
	diskErr error
}

// Dir returns the spool's directory.
func (s *Spool) Dir() string { return s.folder.dir }

// Append adds one line to a layer; see the runner's Recorder. Lines of the kernel layer are written in batches, all
// others at once. A line that is empty, has a newline, or is longer than [MaxLine] is counted as dropped and takes no
// sequence number; the layer goes on. Append allocates nothing once the layer's buffer has grown.
func (s *Spool) Append(path string, encode func(dst []byte, seq uint64) []byte) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("append to %s: not a layer", path)
	}
	return l.append(encode)
}

// Begin creates the file of a layer before its first line, so that it can be read or linked during the run.
func (s *Spool) Begin(path string) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("begin %s: not a layer", path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begin()
}

// Counts returns how many lines of a layer were written and dropped so far. It writes batched lines
// first.
func (s *Spool) Counts(path string) schema.LayerCounts {
	l := s.layers[path]
	if l == nil {
		return schema.LayerCounts{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return schema.LayerCounts{Seen: l.written + l.dropped, Written: l.written, Dropped: l.dropped}
}

// Failed returns the first error in writing a layer or a member; nil if all that was recorded is in the spool.
func (s *Spool) Failed() error {
	for _, p := range s.run.Layers() {
		if err := s.layers[p].failed(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.members)) {
		if err := s.members[path].failed(); err != nil {
			return err
		}
	}
	return nil
}

// Create opens a member for bytes that are written piece by piece: a captured stream, or the capability surface, which
// may be large. The path must be new. The writer is not safe for concurrent use, and stays broken after a write error.
func (s *Spool) Create(path string) (io.WriteCloser, error) {
	document := isDocument(path) && path != schema.SurfacePath
	if !safePath(path) || isLayer(path) || document || path == schema.ManifestPath {
		return nil, fmt.Errorf("create member %q: not a path for a stream of bytes", path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("create member %s: %w", path, os.ErrClosed)
	}
	if s.members[path] != nil || len(s.members) >= maxMembers-32 {
		return nil, fmt.Errorf("create member %s: %w", path, os.ErrExist)
	}
	f, err := s.folder.openFile(path, os.O_EXCL)
	if err != nil {
		return nil, err
	}
	m := &memberFile{folder: s.folder, flusher: s.flusher, path: path, file: f, ledger: newLedger()}
	s.members[path] = m
	return m, nil
}

// Sync writes what is batched and puts everything appended so far on disk.
func (s *Spool) Sync() error {
	var errs []error
	for _, p := range s.run.Layers() {
		errs = append(errs, s.layers[p].sync())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		errs = append(errs, m.sync())
	}
	return errors.Join(errs...)
}

// Close ends the spool without sealing it and leaves it for [Recover].
// It does nothing after Seal or another Close.
func (s *Spool) Close() error {
	err := s.finish()
	if errors.Is(err, errEnded) {
		return nil
	}
	s.release()
	return errors.Join(err, s.file.lock.Close())
}

var errEnded = fmt.Errorf("the spool was sealed or closed before: %w", os.ErrClosed)

// finish stops the flusher, writes what is batched and ends the members. The lock stays held. A second call does
// nothing and returns errEnded.
func (s *Spool) finish() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errEnded
	}
	s.closed = true
	s.mu.Unlock()
	s.flusher.end()
	s.disk.Wait()
	var errs []error
	for _, p := range s.run.Layers() {
		errs = append(errs, s.layers[p].close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.Close()
	}
	return errors.Join(errs...)
}

// release closes the files that are held for sealing.
func (s *Spool) release() {
	for _, l := range s.layers {
		if l.file != nil {
			l.file.Close()
		}
	}
	for _, m := range s.members {
		m.file.Close()
	}
	s.documents.close()
}

// ErrExists is returned by [CreateSpool], wrapped with the path, if the run id has a spool already: of a live run, or
// one to recover.
var ErrExists = errors.New("a spool of this run exists")

// DefaultSpoolDir is assay-run/spool below $XDG_STATE_HOME, or below ~/.local/state if that is not set or, as the XDG
// base directory specification asks, not absolute. ~ is $HOME, or, as in services of systemd, from the password
// database.
func DefaultSpoolDir() (string, error) {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "assay-run", "spool"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, uerr := user.Current(); uerr == nil && filepath.IsAbs(u.HomeDir) {
			home, err = u.HomeDir, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("find the spool directory: %w (set XDG_STATE_HOME or name one with --spool-dir)", err)
	}
	return filepath.Join(home, ".local", "state", "assay-run", "spool"), nil
}

// CreateSpool is [StartSpool] and then [Spool.OnDisk].
func CreateSpool(dir string, run schema.Run) (*Spool, error) {
	s, err := StartSpool(dir, run)
	if err != nil {
		return nil, err
	}
	if err := s.OnDisk(); err != nil {
		return nil, errors.Join(err, s.Close(), os.RemoveAll(s.folder.dir))
	}
	return s, nil
}

// StartSpool creates dir/<run.RunID>/ (0700) with run.json, and dir if necessary. It makes the spool complete and
// locked before it gets its name, so a concurrent recover never finds an incomplete one. It may not be on disk yet: see
// [Spool.OnDisk]. The error is [ErrExists] if the run id has a spool.
func StartSpool(dir string, run schema.Run) (_ *Spool, err error) {
	if !safeRunID(run.RunID) {
		return nil, fmt.Errorf("create spool: run id %q is not 1 to 128 ASCII letters, digits, '_' or '-'", run.RunID)
	}
	if run.Output == "" || !filepath.IsAbs(run.Output) {
		return nil, fmt.Errorf("create spool of %s: output %q is not an absolute path", run.RunID, run.Output)
	}
	run.Schema = schema.RunV0
	doc, err := schema.Document(run)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create spool directory: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("spool directory: %w", err)
	}
	if err := checkSpoolDir(dir); err != nil {
		return nil, fmt.Errorf("spool directory: %w", err)
	}
	sweep(dir)
	final := filepath.Join(dir, run.RunID)
	tmp, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	lock, err := os.OpenFile(filepath.Join(tmp, schema.RunPath), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := flock(lock); err != nil {
		return nil, fmt.Errorf("lock spool %s: %w (the spool needs a file system with locks: choose one "+
			"with --spool-dir)", final, err)
	}
	if _, err := lock.Write(doc); err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Join(final, schema.RunPath), err)
	}
	reserved := reserveSpace(filepath.Join(tmp, reserveName), reserveBytes) == nil
	// Renaming onto an existing spool fails, since no spool is empty.
	if err := os.Rename(tmp, final); err != nil {
		if errors.Is(err, os.ErrExist) || isNotEmpty(err) {
			return nil, fmt.Errorf("create spool %s: %w", final, ErrExists)
		}
		return nil, fmt.Errorf("create spool of %s: %w", run.RunID, err)
	}
	s := emptySpool(newFolder(final, reserved), run,
		&runFile{sum: digest(sha256.Sum256(doc)), lock: lock})
	s.start()
	s.disk.Go(func() {
		// The first of these commits the whole transaction on journalling file
		// systems; the others then cost little.
		if err := errors.Join(lock.Sync(), syncDir(final), syncDir(dir)); err != nil {
			s.diskErr = fmt.Errorf("sync spool %s: %w", final, err)
		}
	})
	return s, nil
}

// OnDisk waits until the spool and its run.json are on disk, so that the run can be recovered after a crash. Call it
// before a command starts.
func (s *Spool) OnDisk() error {
	s.disk.Wait()
	return s.diskErr
}

// emptySpool returns a spool without lines, whose flusher does not run.
func emptySpool(folder *folder, run schema.Run, file *runFile) *Spool {
	s := &Spool{run: run, file: file, folder: folder, flusher: newFlusher(), layers: map[string]*layer{},
		documents: newDocumentFiles(folder), members: map[string]*memberFile{}}
	for _, p := range run.Layers() {
		s.layers[p] = newLayer(p, folder, s.flusher, file)
	}
	return s
}

// start starts the flusher.
func (s *Spool) start() {
	last := map[string]uint64{}
	kernel := s.layers[schema.KernelPath]
	s.flusher.start(func() { kernel.failed() }, func() {
		s.Sync() // a failed sync breaks its layer, which then reports it
		s.makeCheckpoint(last)
	})
}

// readRun decodes a spool's run.json.
func readRun(f io.Reader) (run schema.Run, err error) {
	data, err := io.ReadAll(io.LimitReader(f, maxDocument))
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(data, &run); err != nil {
		return run, err
	}
	if run.Schema != schema.RunV0 || !safeRunID(run.RunID) {
		return run, fmt.Errorf("not a %s document", schema.RunV0)
	}
	return run, nil
}

// errNotResumable is returned by [ResumeSpool], wrapped with the reason: the run had ended, lines of it were dropped,
// or its files were changed. [Recover] seals such a spool.
var errNotResumable = errors.New("the run cannot go on")

// ResumeSpool takes over the spool of a run whose recorder died, so that the run can go on. It cuts incomplete last
// lines and counts them as dropped. The error says why the run cannot go on, or is one of [Recover]'s. On an error the
// spool is not changed.
func ResumeSpool(dir, runID string) (_ *Spool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("resume run %s: %w", runID, err)
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	spool, lock, run, sum, err := takeSpool(dir, runID)
	if err != nil {
		return nil, err
	}
	s := emptySpool(newFolder(spool, false), run, &runFile{sum: sum, lock: lock})
	defer func() {
		if err != nil {
			s.release()
			lock.Close()
		}
	}()
	if info, err := lock.Stat(); err != nil {
		return nil, err
	} else if info.Mode().Perm() == lossyMode {
		return nil, fmt.Errorf("%w: not all of it could be written", errNotResumable)
	}
	scans, points, err := scanLayers(spool, run)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(points.runs, func(d string) bool { return d != sum }) {
		return nil, fmt.Errorf("%w: %s was changed after it was written", errNotResumable, schema.RunPath)
	}
	if scans[schema.EventsPath].last.Type == schema.RunFinished || hasEndDocuments(spool) {
		return nil, fmt.Errorf("%w: the run had already ended", errNotResumable)
	}
	for _, p := range run.Layers() {
		if scan := scans[p]; scan.bad > 0 || scan.fault != "" {
			return nil, fmt.Errorf("%w: %s was changed after it was written", errNotResumable, p)
		}
		if err := s.layers[p].resume(scans[p]); err != nil {
			return nil, err
		}
	}
	if err := s.documents.resume(); err != nil {
		return nil, err
	}
	s.folder.restoreReserve()
	s.start()
	return s, nil
}

// Run returns the content of run.json.
func (s *Spool) Run() schema.Run { return s.run }

// hasEndDocuments reports whether a spool holds a document of the run's end.
func hasEndDocuments(dir string) bool {
	return slices.ContainsFunc(documents, func(path string) bool {
		_, err := os.Lstat(layerFile(dir, path))
		return path != schema.RunPath && err == nil
	})
}

// takeSpool locks the spool of a run whose recorder has ended, and reads its run.json.
func takeSpool(dir, runID string) (spool string, lock *os.File, run schema.Run, sum string, err error) {
	spool, lock, err = lockSpool(dir, runID)
	if err != nil {
		return "", nil, run, "", err
	}
	h := sha256.New()
	run, err = readRun(io.TeeReader(lock, h))
	sum = digest([sha256.Size]byte(h.Sum(nil)))
	if err == nil && run.RunID != runID {
		err = fmt.Errorf("it is of run %s", run.RunID)
	}
	if err != nil {
		lock.Close()
		return "", nil, run, "", fmt.Errorf("%s: %w (the run had not begun, or its spool was damaged; "+
			"remove %s to forget it)", filepath.Join(spool, schema.RunPath), err, spool)
	}
	return spool, lock, run, sum, nil
}

// flockSoon waits for a lock: up to 30 s for listings of spools, which hold it in shared mode for a short time, but
// only 0.2 s for a recorder, which holds it in exclusive mode. Even a killed recorder's lock may need a moment, if a
// child that it was forking is about to exit.
func flockSoon(f *os.File) (err error) {
	const step, maxExclusive, maxTries = 20 * time.Millisecond, 10, 1500
	exclusive := 0
	for tries := 0; tries < maxTries && exclusive < maxExclusive; tries++ {
		if err = flock(f); !errors.Is(err, errLocked) {
			return err
		}
		if heldByOther(f) {
			exclusive++
		}
		time.Sleep(step)
	}
	return err
}

// AppendBatch adds n lines to a layer in one write, with no other line between them. encode appends line i as in
// Append. If Append would refuse one of them, all are dropped and take no sequence number.
func (s *Spool) AppendBatch(path string, n int, encode func(dst []byte, seq uint64, i int) []byte) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("append to %s: not a layer", path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.accepts(uint64(n)); err != nil {
		return err
	}
	start := len(l.buf)
	for i := range n {
		at := len(l.buf)
		l.buf = encode(l.buf, l.seq+uint64(i), i)
		if err := l.endLine(at); err != nil {
			l.buf = l.buf[:start]
			l.lose(uint64(n))
			return fmt.Errorf("append to %s: a batch was dropped for %w", l.path, err)
		}
	}
	l.seq += uint64(n)
	l.pending += uint64(n)
	return l.flush()
}

// Put writes a whole document. It replaces an earlier one, or a member of Create. After a crash the spool holds either
// the old or the new one. On a full disk it uses the reserve.
func (s *Spool) Put(path string, data []byte) error {
	if !safePath(path) || isLayer(path) || path == schema.RunPath || path == schema.ManifestPath ||
		path == schema.IntegrityPath {
		return fmt.Errorf("put %q: not a path for a document", path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("put %s: %w", path, os.ErrClosed)
	}
	s.replace(path)
	if err := s.documents.put(path, data); err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	return nil
}

// replace removes a member that Create made, such as an incomplete capability surface, since its space may be needed on
// a full disk. s.mu is held.
func (s *Spool) replace(path string) {
	m := s.members[path]
	if m == nil {
		return
	}
	delete(s.members, path)
	m.Close()
	m.file.Close()
	s.folder.remove(path)
}

// OnCheckpoint makes a goroutine of the spool call f about once a second while the run writes, with the layers and
// streams that have grown since the last call. They are on disk up to there. f may append to layers, but must not end
// the spool. There are no calls after Seal or Close has returned, or after OnCheckpoint(nil).
func (s *Spool) OnCheckpoint(f func(schema.Checkpoint)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = f
}

// makeCheckpoint reports what has grown since last, and updates last. The line about the last checkpoint itself does
// not count as growth.
func (s *Spool) makeCheckpoint(last map[string]uint64) {
	s.mu.Lock()
	f, members := s.checkpoint, maps.Clone(s.members)
	s.mu.Unlock()
	if f == nil {
		return
	}
	c := schema.Checkpoint{Layers: map[string]schema.LayerTree{}}
	for _, p := range s.run.Layers()[1:] {
		if t := s.layers[p].state(); t.Lines > last[p] {
			c.Layers[schema.LayerName(p)], last[p] = t, t.Lines
		}
	}
	for _, p := range slices.Sorted(maps.Keys(members)) {
		if m := members[p].state(); isStream(p) && uint64(m.Bytes) > last[p] {
			if c.Members == nil {
				c.Members = map[string]schema.MemberBytes{}
			}
			c.Members[p], last[p] = m, uint64(m.Bytes)
		}
	}
	t := s.layers[schema.EventsPath].state()
	if len(c.Layers)+len(c.Members) == 0 && t.Lines <= last[schema.EventsPath] {
		return
	}
	c.Layers[schema.LayerName(schema.EventsPath)] = t
	c.Run = s.file.sum
	last[schema.EventsPath] = t.Lines + 1 // the checkpoint's own line
	f(c)
}

// Redact makes Seal remove the secrets that r knows, since r may have learned one after it was written. The receipt
// counts them. A member from which one cannot be removed is dropped. Nil removes nothing. Call it before Seal.
func (s *Spool) Redact(r *redact.Redactor) { s.redactor = r }

// recoveredReceipt returns the receipt for a run whose recorder died before it wrote one.
func recoveredReceipt(run schema.Run) *schema.Redaction {
	receipt := &schema.Redaction{Mode: schema.RedactionRecovered, ByRule: map[string]uint64{},
		ByField: map[string]uint64{}}
	if run.Redaction == schema.RedactionDisabled {
		receipt.Mode = schema.RedactionDisabled
		return receipt
	}
	receipt.NotSearched = append(redact.NotSearched(),
		"the values of known secrets: recover does not know them, and finds only credentials by their format and "+
			"passwords in arguments and URLs")
	return receipt
}

// removeCredentials removes from a recovered run what looks like a credential, unless redaction was disabled for it.
// out holds the new members and is nil if nothing was found. It is in the output's directory, since the spool's disk
// may be full.
func removeCredentials(ctx context.Context, run schema.Run, sources []source) (_ []source, removal *schema.Removal,
	out *scratch, err error) {
	if run.Redaction == schema.RedactionDisabled {
		return sources, nil, nil, nil
	}
	r, err := redact.NewEphemeral()
	if err != nil {
		return nil, nil, nil, err
	}
	r.Keep(run.RunID)
	if out, err = newScratch(filepath.Dir(run.Output)); err != nil {
		return nil, nil, nil, err
	}
	c := newCleaner(ctx, r, out, run.RunID)
	clean, taken, err := c.clean(sources)
	if err != nil || taken.RedactedCount == 0 && len(taken.Dropped) == 0 {
		out.Close()
		return sources, nil, nil, err
	}
	return clean, &taken, out, c.tell(clean, taken, func(*schema.Redaction) {})
}

// Seal ends the spool and writes the bundle to the run's output. The bundle is written to a file without a name (see
// [Output]), synced and then named. It replaces a regular file or symbolic link, as tar would; anything else is an
// error. Then the spool is removed. On an error the output is unchanged, and the spool stays for [Recover]. Layers that
// were never written are sealed empty, and missing documents as Recover would make them.
//
// Seal reads the descriptors that the recorder wrote to, so deleted or replaced files do not matter. Bytes that
// somebody changed are sealed as they are, and Sealed.Tampered and the bundle say so.
func (s *Spool) Seal(ctx context.Context) (Sealed, error) {
	// A layer that failed has returned the error and counted the loss. Its file has whole lines and is sealed.
	if err := s.finish(); errors.Is(err, errEnded) {
		return Sealed{}, fmt.Errorf("seal run %s: %w", s.run.RunID, err)
	}
	defer s.file.lock.Close()
	defer s.release()
	var reserve sync.WaitGroup
	// In the background, since it can take longer than packing a small run.
	reserve.Go(func() { _ = os.Remove(filepath.Join(s.folder.dir, reserveName)) })
	defer reserve.Wait()
	sources, err := s.sources()
	var notes []string
	if err == nil {
		sources, notes, err = complete(s.folder.dir, s.run, sources, nil)
	}
	var removed *schema.Removal
	var found []Tampered
	seal := newSealing(s.run, s.folder, s.redactor, s.unexpected)
	defer seal.close()
	if err == nil && s.redactor != nil {
		sources, removed, found, err = seal.removeSecrets(ctx, sources)
	}
	var sealed Sealed
	out := s.out
	if err == nil && out == nil {
		if out, err = OpenOutput(s.run.Output, true); err == nil {
			defer out.Close()
		}
	}
	if err == nil {
		sealed, err = seal.write(ctx, out, sources, found)
	}
	if err != nil {
		return Sealed{}, fmt.Errorf("seal run %s: %w (its spool %s is kept: \"assay-run recover --spool-dir "+
			"%s %s\" seals it)", s.run.RunID, err, s.folder.dir, filepath.Dir(s.folder.dir), s.run.RunID)
	}
	sealed.Notes, sealed.Removed = append(notes, sealed.Notes...), removed
	if removed != nil {
		sealed.Result = documentOf(sources, schema.ResultPath)
	}
	reserve.Wait()
	s.release() // before remove, since the last close of a file without a name is slower
	return sealed, s.remove()
}

// SealTo makes Seal write to an output that is already open. The caller closes it.
func (s *Spool) SealTo(out *Output) { s.out = out }

// documentOf returns a document's bytes; nil if they are not in memory.
func documentOf(sources []source, path string) []byte {
	for _, src := range sources {
		if src.path == path {
			return src.data
		}
	}
	return nil
}

// sources lists the members that the recorder made. The spool must have ended.
func (s *Spool) sources() ([]source, error) {
	var sources []source
	integrity := schema.Integrity{Schema: schema.IntegrityV0, RunID: s.run.RunID,
		Checkpoint: schema.Checkpoint{Layers: map[string]schema.LayerTree{}}}
	for p, l := range s.layers {
		integrity.Layers[schema.LayerName(p)] = l.tree.state()
		if l.file != nil {
			sources = append(sources, source{path: p, size: l.size, held: l.file, wrote: l.ledger})
		}
	}
	for p, m := range s.members {
		if isStream(p) {
			if integrity.Members == nil {
				integrity.Members = map[string]schema.MemberBytes{}
			}
			integrity.Members[p] = m.state()
		}
		sources = append(sources, source{path: p, size: m.ledger.size, held: m.file, wrote: m.ledger})
	}
	sources = append(sources, s.documents.sources()...)
	doc, err := schema.Document(integrity)
	if err != nil {
		return nil, err
	}
	return append(sources, source{path: schema.IntegrityPath, size: int64(len(doc)), data: doc}), nil
}

// unexpected finds files in the spool that were deleted or replaced, and files that the recorder did not make.
func (s *Spool) unexpected() (found []Tampered) {
	if !isDir(s.folder.dir) {
		return []Tampered{{What: "was deleted; the bundle has what the recorder still held"}}
	}
	found = s.folder.others()
	ours := map[string]*os.File{}
	for p, l := range s.layers {
		if l.file != nil {
			ours[p] = l.file
		}
	}
	for p, m := range s.members {
		ours[p] = m.file
	}
	for p, f := range ours {
		if !sameFile(f, layerFile(s.folder.dir, p)) {
			found = append(found, Tampered{p, "was deleted or replaced; the bundle has what the recorder wrote"})
		}
	}
	filepath.WalkDir(s.folder.dir, func(name string, d os.DirEntry, err error) error {
		rel, rerr := filepath.Rel(s.folder.dir, name)
		path := filepath.ToSlash(rel)
		if err != nil || rerr != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") || path == schema.RunPath {
			return nil
		}
		if ours[path] == nil && s.documents.byPath[path] == nil {
			found = append(found, notMade(path))
		}
		return nil
	})
	slices.SortFunc(found, func(a, b Tampered) int { return strings.Compare(a.String(), b.String()) })
	return bounded(found)
}

// spoolSources lists the members in a spool: every regular file with a member's path, except run.json.
// sizes limits the bytes of layers. Files with a second name (see otherNames) are left out.
func spoolSources(dir string, sizes map[string]int64) ([]source, error) {
	var sources []source
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		if !d.Type().IsRegular() || !safePath(path) || path == schema.RunPath || path == schema.ManifestPath ||
			path == schema.IntegrityPath {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if otherNames(path, info) {
			return nil
		}
		src := source{path: path, size: info.Size(), file: name}
		if size, ok := sizes[path]; ok {
			if size > src.size {
				return fmt.Errorf("%s is %d bytes, %d were written to it", name, src.size, size)
			}
			src.size = size
		}
		sources = append(sources, src)
		return nil
	})
	return sources, err
}

// sweep removes spools of processes that died while they created or removed them.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), donePrefix):
			os.RemoveAll(name)
		case strings.HasPrefix(e.Name(), newPrefix):
			if info, err := e.Info(); err == nil && isOld(info) && !isLocked(filepath.Join(name, schema.RunPath)) {
				os.RemoveAll(name)
			}
		}
	}
}

// remove is removeSpool for the process that holds the lock.
func (s *Spool) remove() error {
	_ = s.file.lock.Close()
	return removeSpool(s.folder.dir)
}

// removeSpool renames the spool before it removes the files, so that an incomplete spool is never taken for an
// interrupted run.
func removeSpool(dir string) error {
	away, err := setAside(dir)
	if away == "" {
		return err
	}
	return removeAside(away)
}

// setAside renames a sealed spool and returns the new name; empty if there is no spool or on an error.
func setAside(dir string) (away string, err error) {
	away = filepath.Join(filepath.Dir(dir), donePrefix+filepath.Base(dir))
	err = os.Rename(dir, away)
	if errors.Is(err, os.ErrExist) || isNotEmpty(err) { // left by a process that was killed
		os.RemoveAll(away)
		err = os.Rename(dir, away)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // somebody else has removed it
	}
	if err != nil {
		return "", notRemoved(err)
	}
	return away, nil
}

func removeAside(away string) error {
	if err := os.RemoveAll(away); err != nil {
		return notRemoved(err)
	}
	return nil
}

func notRemoved(err error) error {
	return fmt.Errorf("the bundle is sealed, but its spool could not be removed: %w", err)
}

// lockSpool locks the spool of an interrupted run until the returned file is closed.
func lockSpool(dir, runID string) (spool string, lock *os.File, err error) {
	if !safeRunID(runID) {
		return "", nil, errors.New("not a run id")
	}
	sweep(dir)
	spool = filepath.Join(dir, runID)
	name := filepath.Join(spool, schema.RunPath)
	if err := foreign(spool); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	lock, err = openRegular(name, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("%s: %w", spool, ErrNoSpool)
	}
	if err != nil {
		return "", nil, err
	}
	err = flockSoon(lock)
	switch {
	case errors.Is(err, errLocked):
		err = ErrAlive
	case err == nil && !sameFile(lock, name):
		err = fmt.Errorf("%s: %w: it was sealed meanwhile", spool, ErrNoSpool)
	}
	if err != nil {
		lock.Close()
		return "", nil, err
	}
	return spool, lock, nil
}

// ErrAlive is returned by [Recover], wrapped with the run id, if the run is still recorded or another process is
// recovering it.
var ErrAlive = errors.New("the run is alive, or is being recovered by another process")

// ErrNoSpool is returned by [Recover], wrapped, if there is no spool with the run id. It wraps os.ErrNotExist.
var ErrNoSpool = fmt.Errorf("there is no interrupted run of this id: %w", os.ErrNotExist)
