// Package recordingtest has a recorder for tests. It writes layers to files, as the spool does, and checks them when
// they are read back.
package recordingtest

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

// Recorder writes layers to files.
type Recorder struct {
	Dir string

	mu     sync.Mutex
	files  map[string]*os.File
	seq    map[string]uint64
	writes map[string]int
	fail   error
}

// New makes a recorder that writes below dir.
func New(dir string) *Recorder {
	return &Recorder{Dir: dir, files: map[string]*os.File{}, seq: map[string]uint64{}, writes: map[string]int{}}
}

func (r *Recorder) Append(layer string, encode func([]byte, uint64) []byte) error {
	return r.AppendBatch(layer, 1, func(dst []byte, seq uint64, _ int) []byte { return encode(dst, seq) })
}

func (r *Recorder) AppendBatch(layer string, n int, encode func([]byte, uint64, int) []byte) error {
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
		name := filepath.Join(r.Dir, layer)
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

func (r *Recorder) Create(path string) (io.WriteCloser, error) {
	return os.Create(filepath.Join(r.Dir, path))
}

func (r *Recorder) Put(path string, data []byte) error {
	name := filepath.Join(r.Dir, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

func (r *Recorder) Sync() error { return nil }

func (r *Recorder) Failed() error { return nil }

func (r *Recorder) Counts(layer string) schema.LayerCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return schema.LayerCounts{Seen: r.seq[layer], Written: r.seq[layer]}
}

// Close closes its files.
func (r *Recorder) Close() {
	for _, f := range r.files {
		f.Close()
	}
}

// Lines reads a layer and checks what must be true of every line of every layer.
func (r *Recorder) Lines(t testing.TB, layer string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.Dir, layer))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return CheckLines(t, data, layer)
}

// CheckLines splits a layer, and checks what must be true of every line of every layer.
func CheckLines(t testing.TB, data []byte, layer string) []string {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	if data[len(data)-1] != '\n' {
		t.Errorf("the layer ends in half a line")
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	decoder := schema.NewLineDecoder(layer)
	for i, line := range lines {
		record, err := decoder.Decode([]byte(line))
		if err != nil {
			t.Fatalf("line %d: %v\n%.500s", i, err, line)
		}
		if record.Seq != uint64(i) {
			t.Fatalf("line %d has seq %d", i, record.Seq)
		}
		if !jsontext.Value(line).IsValid() {
			t.Fatalf("line %d is not valid JSON: %.500s", i, line)
		}
	}
	return lines
}

// Fail makes every further write fail with err; nil ends that.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// Failing is the error with which writes fail.
func (r *Recorder) Failing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fail
}

// Writes counts the writes to a layer.
func (r *Recorder) Writes(layer string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes[layer]
}
