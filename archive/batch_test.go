package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestBatchesAreContiguousAndWhole(t *testing.T) {
	dir := t.TempDir()
	s, err := CreateSpool(filepath.Join(dir, "spool"),
		schema.Run{RunID: "run_1", Output: filepath.Join(dir, "out.tar.gz")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 50 {
				err := s.AppendBatch(schema.TurnsPath, 5, func(dst []byte, seq uint64, i int) []byte {
					return fmt.Appendf(dst, `{"seq":%d,"writer":%d,"i":%d}`, seq, w, i)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	err = s.AppendBatch(schema.TurnsPath, 2, func(dst []byte, seq uint64, i int) []byte {
		return append(dst, []string{"{}", "{\n}"}[i]...)
	})
	if err == nil {
		t.Error("a line with a newline was taken")
	}
	data, err := os.ReadFile(filepath.Join(s.Dir(), schema.TurnsPath))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) != 2000 {
		t.Fatalf("%d lines, want 2000", len(lines))
	}
	var writer int
	for n, line := range lines {
		var seq, w, i int
		if _, err := fmt.Sscanf(line, `{"seq":%d,"writer":%d,"i":%d}`, &seq, &w, &i); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			writer = w
		}
		if seq != n || i != n%5 || w != writer {
			t.Fatalf("line %d is %s", n, line)
		}
	}
	if c := s.Counts(schema.TurnsPath); c.Written != 2000 || c.Dropped != 2 {
		t.Errorf("counts %+v", c)
	}
}
