package runner

import (
	"bytes"
	"io"
	"os"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// memory is a Recorder that keeps everything.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
	lines map[string]uint64
}

func newMemory() *memory {
	return &memory{files: map[string][]byte{}, lines: map[string]uint64{}}
}

func (m *memory) Append(layer string, encode func(dst []byte, seq uint64) []byte) error {
	return m.AppendBatch(layer, 1, func(dst []byte, seq uint64, _ int) []byte { return encode(dst, seq) })
}

func (m *memory) AppendBatch(layer string, n int, encode func(dst []byte, seq uint64, i int) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		m.files[layer] = append(encode(m.files[layer], m.lines[layer], i), '\n')
		m.lines[layer]++
	}
	return nil
}

func (m *memory) Create(string) (io.WriteCloser, error) { return nil, os.ErrInvalid }

func (m *memory) Sync() error { return nil }

func (m *memory) Put(path string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = bytes.Clone(data)
	return nil
}

// Failed is part of [Recorder].
func (m *memory) Failed() error { return nil }

func (m *memory) Counts(layer string) schema.LayerCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return schema.LayerCounts{Seen: m.lines[layer], Written: m.lines[layer]}
}
