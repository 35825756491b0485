package contract

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestAFloodingCheckIsCappedOnDiskAndSearchedWhole(t *testing.T) {
	kept := members{}
	// 64 MiB of output; the text comes after the cap, the tail is the last 4 KiB.
	flood := expecting(check("flood", "head -c 67108864 /dev/zero | tr '\\0' x; echo; echo the-needle; seq 1 2000"),
		"the-needle")
	r := evaluate(t, t.TempDir(), Options{Output: kept.open, OutputCap: 1 << 20}, flood).Results[0]
	if !r.Passed {
		t.Errorf("not passed: %+v", r)
	}
	if r.OutputBytes < 64<<20 || r.OutputKept != 1<<20 || r.OutputPath != "checks/flood/output" {
		t.Errorf("bytes %d kept %d path %q", r.OutputBytes, r.OutputKept, r.OutputPath)
	}
	if len(r.OutputTail) != 4096 || !strings.HasSuffix(r.OutputTail, "\n1999\n2000\n") {
		t.Errorf("tail of %d bytes ends %q", len(r.OutputTail), r.OutputTail[max(0, len(r.OutputTail)-20):])
	}
	m := kept["checks/flood/output"]
	if m == nil || m.Len() != 1<<20 || !m.closed {
		t.Errorf("member %v", m != nil)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type fullDisk struct{ left int }

func (f *fullDisk) Close() error { return nil }

func (f *fullDisk) Write(p []byte) (int, error) {
	n := min(f.left, len(p))
	f.left -= n
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func TestOutputThatCannotBeKeptDoesNotFailTheCheck(t *testing.T) {
	for name, open := range map[string]func(string) (io.WriteCloser, error){
		"the disk fills up": func(string) (io.WriteCloser, error) { return &fullDisk{left: 3}, nil },
		"the member cannot be made": func(string) (io.WriteCloser, error) {
			return nil, errors.New("no space left on device")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := evaluate(t, t.TempDir(), Options{Output: open},
				expecting(check("c", "echo hello"), "hello")).Results[0]
			if !r.Passed || r.OutputTail != "hello\n" || !strings.Contains(r.OutputError, "no space left") ||
				r.OutputKept > 3 {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestTheTextIsFoundHoweverTheOutputIsCut(t *testing.T) {
	const output = "aab aaab aaaab the text"
	for _, text := range []string{"a", "aaab", "aaaab", "the text", "b a", output, "aaaaab", "x", ""} {
		for size := 1; size <= len(output); size++ {
			s := newSink(expecting(check("c", "true"), text), Options{})
			for chunk := range slices.Chunk([]byte(output), size) {
				s.Write(chunk)
			}
			if want := strings.Contains(output, text); s.matched != want {
				t.Errorf("%q in pieces of %d: found %v, want %v", text, size, s.matched, want)
			}
		}
	}
}
