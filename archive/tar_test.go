package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// Headers mean to archive/tar what they mean to us, and are read back.
func TestHeaders(t *testing.T) {
	long := "checks/" + strings.Repeat("%20", 70) + "/output"
	for name, c := range map[string]struct {
		path   string
		size   int64
		blocks int
	}{
		"a plain member":                    {"stdio/stdout", 5, 1},
		"an empty member":                   {"layers/sdk.ndjson", 0, 1},
		"a path of 100 bytes":               {strings.Repeat("p", 100), 1, 1},
		"a path of 101 bytes":               {strings.Repeat("p", 101), 1, 3},
		"a long path":                       {long, 1, 3},
		"the largest size in octal":         {"layers/kernel.ndjson", 1<<33 - 1, 1},
		"a size that needs PAX":             {"layers/kernel.ndjson", 1 << 33, 3},
		"a size of a digit more":            {"layers/kernel.ndjson", 10_000_000_000, 3},
		"a long path and a size beyond all": {long, 1 << 50, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := appendHeaders(nil, c.path, c.size)
			if len(b) != c.blocks*blockSize {
				t.Errorf("%d bytes of headers", len(b))
			}
			h, err := tar.NewReader(bytes.NewReader(b)).Next()
			if err != nil {
				t.Fatal(err)
			}
			if h.Name != c.path || h.Size != c.size || h.Mode != 0o644 || h.Uid != 0 || h.Gid != 0 ||
				h.ModTime.Unix() != 0 || h.Typeflag != tar.TypeReg {
				t.Errorf("archive/tar reads %+v", h)
			}
			path, size, err := newWalker(bytes.NewReader(b)).next()
			if err != nil || path != c.path || size != c.size {
				t.Errorf("our reader reads %q, %d, %v", path, size, err)
			}
		})
	}
}

// What packs too well to be told from a bomb is stored, by every codec.
func TestSealingMakesNoBombs(t *testing.T) {
	layertest.Night(t)
	for _, name := range []string{"a.tar.gz", "a.tar.zst"} {
		run := testRun(t)
		run.Output += name
		s, _ := newSpool(t, run)
		record(t, s, 1)
		w, err := s.Create("other/zeros")
		if err != nil {
			t.Fatal(err)
		}
		chunk := make([]byte, 1<<20)
		for range 2 * bombFloor >> 20 {
			w.Write(chunk)
		}
		w.Close()
		sealed, err := s.Seal(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		mustBeSound(t, sealed.Path)
		if n := int64(2*bombFloor) / sealed.Bytes; n < 190 || n >= bombRatio {
			t.Errorf("%s: %d bytes were packed to %d, %d to 1", name, 2*bombFloor, sealed.Bytes, n)
		}
		os.Remove(sealed.Path)
	}
}

func TestASpoolEndsOnce(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	record(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := s.Seal(context.Background()); err == nil {
		t.Error("a closed spool was sealed without its lock")
	}
	if err := s.Append(schema.EventsPath, func(b []byte, _ uint64) []byte { return append(b, "{}"...) }); err == nil {
		t.Error("a closed spool took a line")
	}
	if list, _ := ListSpools(dir); len(list) != 1 {
		t.Errorf("spools %v", list)
	}
}
