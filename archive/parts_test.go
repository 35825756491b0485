package archive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// A file that somebody else made at a member's path is removed and told of, and a folder that was deleted does not keep
// the recorder from writing.
func TestAFolderMakesItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := newFolder(dir, false)
	if err := os.MkdirAll(layerFile(dir, "layers/a.ndjson"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"layers/a.ndjson", "layers/b.ndjson", "deleted/c"} {
		if path == "deleted/c" {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		file, err := f.openFile(path, os.O_EXCL)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := file.WriteString("x"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		file.Close()
	}
	others := f.others()
	if len(others) != 1 || others[0].Path != "layers/a.ndjson" {
		t.Errorf("files of others: %v", others)
	}
}

// The reserve is freed once, and from then on only the end of the run is written.
func TestAReserveIsFreedOnce(t *testing.T) {
	f := newFolder(t.TempDir(), false)
	if f.restoreReserve(); f.full.Load() {
		t.Error("the disk is full")
	}
	info, err := os.Stat(filepath.Join(f.dir, reserveName))
	if err != nil || info.Size() != reserveBytes {
		t.Fatalf("the reserve: %v, %v", info, err)
	}
	if !f.freeReserve() || f.freeReserve() || !f.full.Load() {
		t.Errorf("it was not freed once; the disk is full: %t", f.full.Load())
	}
	if _, err := os.Stat(filepath.Join(f.dir, reserveName)); err == nil {
		t.Error("it is still there")
	}
}

// A document is sealed from memory if it is small, else from its file, and a later one replaces it.
func TestDocumentFilesKeepTheLast(t *testing.T) {
	d := newDocumentFiles(newFolder(t.TempDir(), false))
	defer d.close()
	large := strings.Repeat("x", maxHeldDocument+1)
	for _, put := range [][2]string{{"a.json", large}, {"a.json", "{}"}, {"b.json", "[]"}, {"b.json", large}} {
		if err := d.put(put[0], []byte(put[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, src := range d.sources() {
		switch {
		case src.path == "a.json" && string(src.data) == "{}" && src.wrote == nil:
		case src.path == "b.json" && src.data == nil && src.held != nil && src.size == int64(len(large)):
		default:
			t.Errorf("%s has %d bytes, %d of them in memory", src.path, src.size, len(src.data))
		}
	}
	if len(d.sources()) != 2 {
		t.Errorf("%d documents", len(d.sources()))
	}
	if d.held != 1 {
		t.Errorf("%d files count as open, and one is", d.held)
	}
}

// A flusher calls nothing before something is touched, and nothing after its end.
func TestAFlusherSleepsUntilItIsTouched(t *testing.T) {
	f := newFlusher()
	flushed := make(chan struct{})
	f.start(func() { flushed <- struct{}{} }, func() {})
	select {
	case <-flushed:
		t.Error("it flushed untouched")
	case <-time.After(2 * batchInterval):
	}
	f.touched()
	f.touched()
	<-flushed
	go func() {
		for range flushed { // a flush may be under way
		}
	}()
	f.end()
	close(flushed)
}

// A layer marks the run on disk once it has lost a line.
func TestALayerMarksTheRunAsLossy(t *testing.T) {
	lock, err := os.OpenFile(filepath.Join(t.TempDir(), schema.RunPath), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	l := newLayer(schema.PolicyPath, newFolder(filepath.Dir(lock.Name()), false), newFlusher(), &runFile{lock: lock})
	mode := func() os.FileMode {
		info, err := lock.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	line := func(text string) error {
		return l.append(func(dst []byte, _ uint64) []byte { return append(dst, text...) })
	}
	if err := line("{}"); err != nil || mode() == lossyMode {
		t.Errorf("after a line: %v, mode %s", err, mode())
	}
	if err := line("{\n}"); err == nil || mode() != lossyMode {
		t.Errorf("after a broken line: %v, mode %s", err, mode())
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	l.file.Close()
}
