package archive

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

var update = flag.Bool("update", false, "write testdata/hostile anew")

const hostileDir = "testdata/hostile"

func hostileName(h hostile) string {
	ext := ".tar.gz"
	if h.name == "decompression-bomb" {
		ext = ".tar.zst"
	}
	return filepath.Join(hostileDir, h.name+ext)
}

// TestHostileCorpusIsRefused verifies the committed files, one fault in each.
// With -update it writes them anew, with a table of what is expected of each
// for other implementations.
func TestHostileCorpusIsRefused(t *testing.T) {
	corpus := hostileCorpus()
	slices.SortFunc(corpus, func(a, b hostile) int { return strings.Compare(a.name, b.name) })
	if *update {
		writeCorpus(t, corpus)
	}
	codes := map[Code]bool{CodeUnreadable: true}
	for _, h := range corpus {
		t.Run(h.name, func(t *testing.T) {
			codes[h.code] = true
			name := hostileName(h)
			if _, err := os.Stat(name); err != nil {
				t.Fatal(err)
			}
			r := verified(t, name)
			if r.OK() {
				t.Fatalf("accepted; %s is due", h.code)
			}
			for _, p := range r.Problems {
				if p.Code != h.code || p.Class != h.code.Class() {
					t.Errorf("%v; only %s is due", &p, h.code)
				}
			}
			if rd, err := Open(name); err == nil {
				for m, err := range rd.Members(context.Background()) {
					if err == nil {
						_, _ = io.ReadAll(m)
					}
				}
			}
		})
	}
	files, _ := os.ReadDir(hostileDir)
	if len(files) != len(corpus)+1 {
		t.Errorf("%d files for %d cases", len(files)-1, len(corpus))
	}
	src, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile("../schema/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(src)) {
		_, quoted, ok := strings.Cut(line, ` Code = "`)
		if code := strings.TrimSuffix(strings.TrimSpace(quoted), `"`); ok {
			if !codes[Code(code)] {
				t.Errorf("no hostile file for %s", code)
			}
			if !strings.Contains(string(spec), "`"+code+"`") {
				t.Errorf("SPEC.md does not list %s", code)
			}
		}
	}
}

// sampleFiles are the members of a sound bundle.
func sampleFiles(t testing.TB) files {
	_, content := members(t, sealSample(t, "base.tar", 3).Path)
	delete(content, schema.ManifestPath)
	f := files{}
	for p, b := range content {
		f[p] = []byte(b)
	}
	return f
}

func writeCorpus(t *testing.T, corpus []hostile) {
	os.RemoveAll(hostileDir)
	if err := os.MkdirAll(hostileDir, 0o755); err != nil {
		t.Fatal(err)
	}
	var index strings.Builder
	index.WriteString("# file class code; written by TestHostileCorpusIsRefused -update\n")
	for _, h := range corpus {
		if err := os.WriteFile(hostileName(h), h.make(sampleFiles(t)), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%s %s %s\n", filepath.Base(hostileName(h)), h.code.Class(), h.code)
	}
	if err := os.WriteFile(filepath.Join(hostileDir, "expected.txt"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
