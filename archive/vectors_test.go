package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVectors holds the committed bundles of SPEC.md against what is sealed
// today: a change of a single byte is a change of the format, or, for the
// packed ones alone, of the compression library.
func TestVectors(t *testing.T) {
	const dir = "testdata/vectors"
	spec, err := os.ReadFile("../schema/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sample.tar", "sample.tar.gz", "sample.tar.zst"} {
		run := testRun(t)
		run.Capture = false // as the committed bundles have it
		sealed := sealRun(t, run, name, 3)
		got, err := os.ReadFile(sealed.Path)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: sealing gives other bytes than the committed bundle has", name)
		}
		if r := mustBeSound(t, file); !strings.Contains(string(spec), r.Identity) {
			t.Errorf("%s: SPEC.md does not give the identity %s", name, r.Identity)
		}
	}
}
