package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// ErrNotResumable is returned by [ResumeSpool], wrapped with what is in the way: the
// run had come to its end, lines of it could not be written, or its files are not as
// they were written. [Recover] seals such a spool.
var ErrNotResumable = errors.New("the run cannot go on")

// ResumeSpool takes over the spool of a run whose recorder died, so that the run can
// go on. Torn last lines are cut, and count as dropped. The other errors are those of
// [Recover]. On any error the spool stays as it is.
func ResumeSpool(dir, runID string) (_ *Spool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("resume run %s: %w", runID, err)
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	spool, lock, run, err := takeSpool(dir, runID)
	if err != nil {
		return nil, err
	}
	s := emptySpool(spool, run, lock)
	defer func() {
		if err != nil {
			s.release()
			lock.Close()
		}
	}()
	if info, err := lock.Stat(); err != nil {
		return nil, err
	} else if info.Mode().Perm() == lossyMode {
		return nil, fmt.Errorf("%w: not all of it could be written", ErrNotResumable)
	}
	scans, _, err := scanLayers(s.dir, runID)
	if err != nil {
		return nil, err
	}
	if scans[schema.EventsPath].last.Type == schema.RunFinished || len(readJournal(s.dir)) > 0 {
		return nil, fmt.Errorf("%w: the run had already ended", ErrNotResumable)
	}
	for _, p := range schema.Layers {
		if scan := scans[p]; scan.bad > 0 || scan.fault != "" {
			return nil, fmt.Errorf("%w: %s was changed after it was written", ErrNotResumable, p)
		}
		if err := s.layers[p].resume(scans[p]); err != nil {
			return nil, err
		}
	}
	if err := s.resumeDocuments(); err != nil {
		return nil, err
	}
	_, err = os.Lstat(filepath.Join(s.dir, reserveName))
	s.reserve = err == nil || reserveSpace(filepath.Join(s.dir, reserveName), reserveBytes) == nil
	s.done.Go(s.flusher)
	return s, nil
}

// lossyMode are the permissions of run.json once lines were dropped. A full disk has
// room for them.
const lossyMode fs.FileMode = 0o700

// Run is what run.json says.
func (s *Spool) Run() schema.Run { return s.run }

// resume opens the layer's file again and reads what it holds.
func (l *layer) resume(scan *layerScan) error {
	f, err := openRegular(layerFile(l.spool.dir, l.path), os.O_RDWR|os.O_APPEND)
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

// resumeDocuments takes in the documents that the spool holds.
func (s *Spool) resumeDocuments() error {
	return filepath.WalkDir(s.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(s.dir, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		if strings.HasPrefix(d.Name(), ".") || path == schema.RunPath || isLayer(path) {
			return nil
		}
		if !safePath(path) || isStream(path) {
			return fmt.Errorf("%w: its spool holds %.100q", ErrNotResumable, path)
		}
		f, err := openRegular(name, os.O_RDWR)
		if err != nil {
			return err
		}
		doc := &document{named: true, ledger: newLedger()}
		s.documents[path] = doc
		data, err := io.ReadAll(io.LimitReader(f, maxDocument))
		doc.ledger.Write(data)
		switch {
		case err == nil && len(data) <= maxHeldDocument && !strings.HasPrefix(path, schema.BlobsDir):
			doc.data = append([]byte{}, data...)
		case err == nil && s.heldFiles < maxHeldFiles:
			s.heldFiles++
			doc.file = f
			return nil
		}
		return errors.Join(err, f.Close())
	})
}

// takeSpool locks the spool of a run that nobody records any more, and reads what the
// run is.
func takeSpool(dir, runID string) (spool string, lock *os.File, run schema.Run, err error) {
	spool, lock, err = lockSpool(dir, runID)
	if err != nil {
		return "", nil, run, err
	}
	run, err = readRun(lock)
	if err == nil && run.RunID != runID {
		err = fmt.Errorf("it is of run %s", run.RunID)
	}
	if err != nil {
		lock.Close()
		return "", nil, run, fmt.Errorf("%s: %w (the run had not begun, or its spool was damaged; remove %s to forget it)", filepath.Join(spool, schema.RunPath), err, spool)
	}
	return spool, lock, run, nil
}

// flockSoon waits for a lock that listings hold in passing, until the last of them
// has had its turn. A lock that is held alone is a recorder's. It waits for that too,
// but only a moment: the lock goes with the last child of one that was killed as it forked.
func flockSoon(f *os.File) (err error) {
	const step, moment, turn = 20 * time.Millisecond, 10, 1500
	alone := 0
	for tries := 0; tries < turn && alone < moment; tries++ {
		if err = flock(f); !errors.Is(err, errLocked) {
			return err
		}
		if heldByOther(f) {
			alone++
		}
		time.Sleep(step)
	}
	return err
}
