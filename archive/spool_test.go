package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

const testRunID = "run_01jd8a7m000000000000000000"

// testRun is a run whose bundle goes to out.tar.gz in a fresh directory.
func testRun(t testing.TB) schema.Run {
	return schema.Run{
		Schema: schema.RunV0, RunID: testRunID, Platform: "linux", AgentShim: "none",
		Command: []string{"/bin/true"}, EnvKeys: []string{}, Workdir: "/", GraceMS: 5000,
		Capture: true, Kernel: "auto", StartedAt: "2026-01-02T03:04:05Z", Recorder: "assay-run test",
		Output: filepath.Join(t.TempDir(), "out.tar.gz"),
	}
}

func newSpool(t testing.TB, run schema.Run) (*Spool, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := CreateSpool(dir, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

// kernelLine appends a v0 kernel event as large as real ones.
func kernelLine(dst []byte, runID string, seq uint64) []byte {
	dst = append(dst, `{"schema":"assay.runner.kernel_event.v0","run_id":"`...)
	dst = append(dst, runID...)
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"pid":`...)
	dst = strconv.AppendUint(dst, 4000+seq/1000, 10)
	dst = append(dst, `,"event_type":1,"kind":"openat","value":"/usr/lib/python3/dist-packages/module_`...)
	dst = strconv.AppendUint(dst, seq*7919%5000, 10)
	return append(dst, `.py","flags":524288,"mode":0,"return_value":3,"access_mode":"read","operation_flags":[],"status":"success"}`...)
}

// members reads a sealed bundle with the system's idea of a tar.
func members(t testing.TB, path string) (names []string, content map[string]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := codecOf(path).decompressor(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	content = map[string]string{}
	for tr := tar.NewReader(z); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return names, content
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		content[h.Name] = string(b)
	}
}

func TestSealedBundleHoldsWhatWasAppended(t *testing.T) {
	run := testRun(t)
	s, dir := newSpool(t, run)
	for range 3000 {
		if err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			return kernelLine(b, testRunID, seq)
		}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Create(schema.StdoutPath)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "hello\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(schema.SurfacePath, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if got := s.Counts(schema.KernelPath); got != (schema.LayerCounts{Seen: 3000, Written: 3000}) {
		t.Errorf("counts %+v", got)
	}
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	names, content := members(t, sealed.Path)
	if names[0] != schema.ManifestPath || !slices.IsSorted(names[1:]) {
		t.Errorf("order %q", names)
	}
	if got := strings.Count(content[schema.KernelPath], "\n"); got != 3000 {
		t.Errorf("%d kernel lines", got)
	}
	if content[schema.StdoutPath] != "hello\n" {
		t.Errorf("stdout %q", content[schema.StdoutPath])
	}
	for _, p := range schema.Layers {
		if _, ok := content[p]; !ok {
			t.Errorf("layer %s is missing", p)
		}
	}
	if strings.Contains(content[schema.RunPath], "output") {
		t.Errorf("run.json tells where the bundle was written:\n%s", content[schema.RunPath])
	}
	var m schema.Manifest
	if err := json.Unmarshal([]byte(content[schema.ManifestPath]), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != len(names)-1 {
		t.Errorf("manifest lists %d of %d members", len(m.Files), len(names)-1)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left in the spool directory: %v", left)
	}
	if _, err := os.Stat(run.Output + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the .tmp is still there: %v", err)
	}
}

func TestLinesAreWrittenThrough(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	for i := range 5 {
		if err := s.Append(schema.EventsPath, func(b []byte, seq uint64) []byte {
			return fmt.Appendf(b, `{"seq":%d}`, seq)
		}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(s.Dir(), schema.EventsPath))
		if err != nil || bytes.Count(b, []byte("\n")) != i+1 {
			t.Fatalf("after %d lines the file holds %q, %v", i+1, b, err)
		}
	}
}

func TestSyncPassesOverWhatIsClosed(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	w, err := s.Create(schema.StdoutPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "text"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
}

func TestARunIDIsTakenOnce(t *testing.T) {
	run := testRun(t)
	_, dir := newSpool(t, run)
	if _, err := CreateSpool(dir, run); !errors.Is(err, ErrExists) {
		t.Fatalf("second spool of a run: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("spool directory holds %v", left)
	}
}

func TestABadLineIsCountedAndTakesNoSeq(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	for name, line := range map[string]string{
		"an empty line": "", "a line with a newline": "{}\n{}", "a giant line": strings.Repeat("x", MaxLine),
	} {
		if err := s.Append(schema.SDKPath, func(b []byte, _ uint64) []byte { return append(b, line...) }); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	var got uint64 = 99
	if err := s.Append(schema.SDKPath, func(b []byte, seq uint64) []byte {
		got = seq
		return append(b, "{}"...)
	}); err != nil || got != 0 {
		t.Errorf("seq %d after bad lines, %v", got, err)
	}
	if c := s.Counts(schema.SDKPath); c != (schema.LayerCounts{Seen: 4, Written: 1, Dropped: 3}) {
		t.Errorf("counts %+v", c)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	encode := func(b []byte, seq uint64) []byte { return kernelLine(b, testRunID, seq) }
	for range 1000 {
		s.Append(schema.KernelPath, encode)
	}
	if n := testing.AllocsPerRun(5000, func() { s.Append(schema.KernelPath, encode) }); n >= 1 {
		t.Errorf("%v allocations per line", n)
	}
}
