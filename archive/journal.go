package archive

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// journalName is a file in spools of earlier builds with the documents of the run's end. Each document follows a line
// with its path, length and digest. If a path occurs several times, the last document counts. An incomplete one is
// ignored. Today each document has its own file.
const journalName = ".documents"

// readJournal returns the documents in the journal of a spool, by path. Documents with a file of their own are left
// out, since the file is newer.
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
		return "", nil, fmt.Errorf("%s is incomplete", path)
	}
	return path, data, nil
}

// readDocument reads a document of the spool. It returns nil if the document is missing, incomplete, invalid, or of
// another run.
func readDocument[T any](dir string, run schema.Run, path string) *T {
	data, ok := readJournal(dir)[path]
	var err error
	if !ok {
		if info, serr := os.Lstat(layerFile(dir, path)); serr != nil || otherNames(path, info) {
			return nil
		}
		data, err = os.ReadFile(layerFile(dir, path))
	}
	if err != nil || schema.Validate(documentSchema(path), data) != nil {
		return nil
	}
	var head struct {
		RunID string `json:"run_id"`
	}
	d := new(T)
	if json.Unmarshal(data, d) != nil || json.Unmarshal(data, &head) != nil || head.RunID != run.RunID {
		return nil
	}
	return d
}
