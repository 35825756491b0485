package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// document is a member that Put wrote. It is sealed from memory where it is small,
// else from the file.
type document struct {
	data   []byte
	file   *os.File // nil with data, and once too many are open
	named  bool     // it has a file of its name
	ledger *ledger
}

// Bounds of what is held of documents.
const (
	maxHeldDocument = 1 << 20 // bytes of one in memory
	maxHeldFiles    = 256
)

func (d *document) close() {
	if d.file != nil {
		d.file.Close()
	}
}

// Put writes a whole document, replacing an earlier one or what Create made. After a crash the
// spool holds the old or the new one, never half of one. On a full disk it
// uses the space that the spool set aside.
func (s *Spool) Put(path string, data []byte) error {
	if !safePath(path) || isLayer(path) || path == schema.RunPath || path == schema.ManifestPath || path == schema.IntegrityPath {
		return fmt.Errorf("put %q: not a path for a document", path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("put %s: %w", path, os.ErrClosed)
	}
	s.replace(path)
	d, err := s.put(path, data)
	if isFull(err) && s.giveReserve() {
		d, err = s.put(path, data)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	if old := s.documents[path]; old != nil {
		old.close()
		if old.named && !d.named {
			_ = os.Remove(filepath.Join(s.dir, filepath.FromSlash(path)))
		}
	}
	s.documents[path] = d
	return nil
}

// replace removes a member of this path that Create made. It is the capability surface, of which
// only a part could be written: its room is needed on a full disk. s.mu is held.
func (s *Spool) replace(path string) {
	m := s.members[path]
	if m == nil {
		return
	}
	delete(s.members, path)
	m.Close()
	m.file.Close()
	_ = os.Remove(filepath.Join(s.dir, filepath.FromSlash(path)))
}

// put writes the document to the journal or to its file. s.mu is held.
func (s *Spool) put(path string, data []byte) (_ *document, err error) {
	name := filepath.Join(s.dir, filepath.FromSlash(path))
	tmp := filepath.Join(s.dir, ".put")
	d := &document{ledger: newLedger(), named: !journaled(path, data)}
	d.ledger.Write(data)
	if len(data) <= maxHeldDocument && !strings.HasPrefix(path, schema.BlobsDir) {
		d.data = append([]byte{}, data...)
	}
	if !d.named {
		return d, s.journal.add(s, path, data)
	}
	f, err := s.create(tmp, os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	defer func() {
		if d.file == nil || err != nil {
			f.Close()
		}
	}()
	if _, err := f.Write(data); err != nil {
		os.Remove(tmp)
		return nil, err
	}
	if err := s.rename(tmp, name); err != nil {
		os.Remove(tmp)
		return nil, err
	}
	if d.data == nil && s.heldFiles < maxHeldFiles {
		s.heldFiles++
		d.file = f
	}
	return d, nil
}

// rename gives a file its name, making its folder. Without a spool it does nothing.
func (s *Spool) rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, os.ErrNotExist) {
		if _, gone := os.Lstat(s.dir); gone != nil {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

// openFile opens a member's file, making its folder.
func (s *Spool) openFile(path string, flag int) (*os.File, error) {
	f, err := s.create(filepath.Join(s.dir, filepath.FromSlash(path)), flag)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return f, nil
}

// planted notes a file that stood in the place of one of the recorder's.
func (s *Spool) planted(name string) {
	rel, err := filepath.Rel(s.dir, name)
	if err != nil {
		rel = name
	}
	s.foundMu.Lock()
	defer s.foundMu.Unlock()
	s.found = append(s.found, Tampered{filepath.ToSlash(rel), "was there before the recorder wrote it; that file was removed"})
}

// create opens a file in the spool for reading and writing. Where somebody has
// deleted the spool it is one without a name, so that what is written is sealed.
func (s *Spool) create(name string, flag int) (*os.File, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow|flag, 0o600)
	}
	f, err := open()
	if errors.Is(err, os.ErrExist) {
		s.planted(name)
		if err := os.RemoveAll(name); err != nil {
			return nil, err
		}
		f, err = open()
	}
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if isThere(s.dir) {
		// Who is deleting the spool can take this directory as well.
		if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			f, err = open()
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	for _, dir := range []string{filepath.Dir(s.dir), os.TempDir()} {
		if f, err = os.CreateTemp(dir, newPrefix); err != nil {
			continue
		}
		if err = os.Remove(f.Name()); err == nil || errors.Is(err, os.ErrNotExist) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, err
}
