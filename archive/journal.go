package archive

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/assay-run/assay-run/schema"
)

// journalName is the file of a spool with the documents of the run's end, as they were
// put. To make, rename and remove a file for each would take longer than to write them.
const journalName = ".documents"

// journal is that file. Each document in it follows a line with its path, its length and
// its digest; the last one of a path counts. What is torn was never put.
type journal struct {
	file *os.File // nil until the first document
	size int64    // bytes of whole documents
}

// journaled tells whether a document goes to the journal.
func journaled(path string, data []byte) bool {
	return isDocument(path) && len(data) <= maxHeldDocument
}

// add appends a document. After an error it was not put.
func (j *journal) add(s *Spool, path string, data []byte) error {
	if j.file == nil {
		f, err := s.create(filepath.Join(s.dir, journalName), os.O_EXCL)
		if err != nil {
			return err
		}
		j.file = f
	}
	b := fmt.Appendf(make([]byte, 0, len(data)+256), "%s %d %s\n", path, len(data), digest(sha256.Sum256(data)))
	b = append(b, data...)
	if _, err := j.file.WriteAt(b, j.size); err != nil {
		return errors.Join(err, j.file.Truncate(j.size)) // gives back its room
	}
	j.size += int64(len(b))
	return nil
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close()
	}
}

// readJournal gives the documents in the journal of a spool, by path. One that has a file
// is not among them: that came later.
func readJournal(dir string) map[string][]byte {
	f, err := openRegular(filepath.Join(dir, journalName), os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || otherNames(journalName, info) {
		return nil
	}
	documents := map[string][]byte{}
	for r := bufio.NewReader(f); ; {
		path, data, err := readJournaled(r)
		if err != nil {
			return documents
		}
		if _, err := os.Lstat(layerFile(dir, path)); err != nil {
			documents[path] = data
		}
	}
}

func readJournaled(r *bufio.Reader) (path string, data []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", nil, err
	}
	var size int
	var sum string
	if _, err := fmt.Sscanf(string(line), "%s %d %s\n", &path, &size, &sum); err != nil {
		return "", nil, err
	}
	if size < 0 || size > maxHeldDocument || !isDocument(path) || path == schema.RunPath {
		return "", nil, fmt.Errorf("not a document of %d bytes: %q", size, path)
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return "", nil, err
	}
	if digest(sha256.Sum256(data)) != sum {
		return "", nil, fmt.Errorf("%s is torn", path)
	}
	return path, data, nil
}
