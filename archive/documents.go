package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// document is a member that Put wrote.
type document struct {
	data   []byte   // of a small one, which is sealed from memory
	file   *os.File // of another, to seal from; nil if too many are open
	ledger *ledger
}

const (
	maxHeldDocument = 1 << 20 // bytes of a document that is held in memory
	maxHeldFiles    = 256     // open files of documents
)

// newDocument returns a document without its file.
func newDocument(path string, data []byte) *document {
	d := &document{ledger: newLedger()}
	d.ledger.Write(data)
	if len(data) <= maxHeldDocument && !strings.HasPrefix(path, schema.BlobsDir) {
		d.data = append([]byte{}, data...)
	}
	return d
}

func (d *document) close() {
	if d.file != nil {
		d.file.Close()
	}
}

// documentFiles are the documents of a spool. It is not safe for concurrent use.
type documentFiles struct {
	folder *folder
	byPath map[string]*document
	held   int // open files
}

func newDocumentFiles(folder *folder) *documentFiles {
	return &documentFiles{folder: folder, byPath: map[string]*document{}}
}

// put writes a document, which replaces an earlier one. On a full disk it uses the reserve.
func (d *documentFiles) put(path string, data []byte) error {
	doc, err := d.write(path, data)
	if isFull(err) && d.folder.freeReserve() {
		doc, err = d.write(path, data)
	}
	if err != nil {
		return err
	}
	if old := d.byPath[path]; old != nil {
		old.close()
		if old.file != nil {
			d.held--
		}
	}
	d.byPath[path] = doc
	return nil
}

// write writes a document to its file.
func (d *documentFiles) write(path string, data []byte) (_ *document, err error) {
	name := filepath.Join(d.folder.dir, filepath.FromSlash(path))
	tmp := filepath.Join(d.folder.dir, ".put")
	doc := newDocument(path, data)
	f, err := d.folder.create(tmp, os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	defer func() {
		if doc.file == nil || err != nil {
			f.Close()
		}
	}()
	if _, err := f.Write(data); err != nil {
		os.Remove(tmp)
		return nil, err
	}
	if err := d.folder.rename(tmp, name); err != nil {
		os.Remove(tmp)
		return nil, err
	}
	d.hold(doc, f)
	return doc, nil
}

// hold keeps the file of a document open to seal from, and reports whether that is needed and not too many are open.
func (d *documentFiles) hold(doc *document, file *os.File) bool {
	if doc.data != nil || d.held == maxHeldFiles {
		return false
	}
	d.held++
	doc.file = file
	return true
}

// resume adds the documents that the spool holds.
func (d *documentFiles) resume() error {
	return filepath.WalkDir(d.folder.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(d.folder.dir, name)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		if strings.HasPrefix(entry.Name(), ".") || path == schema.RunPath || isLayer(path) {
			return nil
		}
		if !safePath(path) || isStream(path) {
			return fmt.Errorf("%w: its spool holds %.100q", errNotResumable, path)
		}
		f, err := openRegular(name, os.O_RDWR)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxDocument))
		if err != nil {
			return errors.Join(err, f.Close())
		}
		doc := newDocument(path, data)
		d.byPath[path] = doc
		if !d.hold(doc, f) {
			return f.Close()
		}
		return nil
	})
}

// close closes the files that are held for sealing.
func (d *documentFiles) close() {
	for _, doc := range d.byPath {
		doc.close()
	}
}

// sources lists the documents for sealing.
func (d *documentFiles) sources() (sources []source) {
	for p, doc := range d.byPath {
		src := source{path: p, size: doc.ledger.size, data: doc.data, held: doc.file}
		if doc.data == nil {
			src.wrote = doc.ledger
		}
		if doc.data == nil && doc.file == nil {
			src.file = layerFile(d.folder.dir, p)
		}
		sources = append(sources, src)
	}
	return sources
}
