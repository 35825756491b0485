package gateway

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// fileRecorder writes layers through to files, as the spool does.
type fileRecorder struct {
	dir string

	mu     sync.Mutex
	files  map[string]*os.File
	seq    map[string]uint64
	writes map[string]int
	fail   error // of every further write
}

func newFileRecorder(dir string) *fileRecorder {
	return &fileRecorder{dir: dir, files: map[string]*os.File{}, seq: map[string]uint64{}, writes: map[string]int{}}
}

func (r *fileRecorder) Append(layer string, encode func([]byte, uint64) []byte) error {
	return r.AppendBatch(layer, 1, func(dst []byte, seq uint64, _ int) []byte { return encode(dst, seq) })
}

func (r *fileRecorder) AppendBatch(layer string, n int, encode func([]byte, uint64, int) []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	var buf []byte
	for i := range n {
		at := len(buf)
		buf = encode(buf, r.seq[layer]+uint64(i), i)
		if len(buf)-at >= 1<<20 || bytes.IndexByte(buf[at:], '\n') >= 0 {
			return errors.New("not a line")
		}
		buf = append(buf, '\n')
	}
	f := r.files[layer]
	if f == nil {
		name := filepath.Join(r.dir, layer)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		var err error
		if f, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		r.files[layer] = f
	}
	r.writes[layer]++
	r.seq[layer] += uint64(n)
	_, err := f.Write(buf)
	return err
}

func (r *fileRecorder) Create(path string) (io.WriteCloser, error) {
	return os.Create(filepath.Join(r.dir, path))
}

func (r *fileRecorder) Put(path string, data []byte) error {
	name := filepath.Join(r.dir, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

func (r *fileRecorder) Sync() error { return nil }

func (r *fileRecorder) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// lines reads a layer and checks what holds for every line of every layer.
func (r *fileRecorder) lines(t testing.TB, layer, id string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, layer))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return checkLines(t, data, id)
}

func checkLines(t testing.TB, data []byte, id string) []string {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	if data[len(data)-1] != '\n' {
		t.Errorf("the layer ends in half a line")
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	c, err := schema.NewLineChecker(id)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		info, err := c.Check([]byte(line))
		if err != nil {
			t.Fatalf("line %d: %v\n%.500s", i, err, line)
		}
		if info.Seq != uint64(i) {
			t.Fatalf("line %d has seq %d", i, info.Seq)
		}
		if !jsontext.Value(line).IsValid() {
			t.Fatalf("line %d is not valid JSON: %.500s", i, line)
		}
	}
	return lines
}
