package archive

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzBundle feeds any bytes to the verifier and the reader: neither may panic
// or hang, and what is sound for one is readable for the other. The corpus is
// the hostile files and the vectors.
func FuzzBundle(f *testing.F) {
	for _, pattern := range []string{hostileDir + "/*.tar.gz", "testdata/vectors/*.tar*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) > 16<<10 {
				continue // those that unpack to much are no food for a fuzzer
			}
			f.Add(b)
			if in, err := openInput(context.Background(), name); err == nil {
				plain, _ := io.ReadAll(in)
				in.Close()
				if len(plain) < 64<<10 {
					f.Add(plain) // mutations get behind the checksums of gzip
				}
			}
		}
	}
	name := filepath.Join(f.TempDir(), "bundle")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		report := verified(t, name)
		r, err := Open(name)
		if err != nil {
			if report.OK() {
				t.Fatalf("verified, but cannot be opened: %v", err)
			}
			return
		}
		if r.Identity() != report.Identity {
			t.Errorf("identity %s and %s", r.Identity(), report.Identity)
		}
		_, err = r.Documents(context.Background())
		if err == nil {
			for m, merr := range r.Members(context.Background()) {
				if err = merr; err == nil {
					_, err = io.ReadAll(m)
				}
				if err != nil {
					break
				}
			}
		}
		if err != nil && report.OK() {
			t.Errorf("verified, but cannot be read: %v", err)
		}
	})
}
