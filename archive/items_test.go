package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// What taps a verification gets the lines of two layers in their order, whichever core checked them, and nothing of a
// bundle without an evaluation file.
func TestTap(t *testing.T) {
	run := testRun(t)
	run.Output = filepath.Join(t.TempDir(), "a.tar.gz")
	s, _ := newSpool(t, run)
	record(t, s, 20_000)
	doc, err := schema.Document(schema.Evaluation{Schema: schema.EvaluationV0, RunID: testRunID, Workdir: "/app",
		Digest: "sha256:" + strings.Repeat("0", 64)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(schema.EvaluationPath, doc); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := func(it *Item) string {
		return fmt.Sprint(it.Path, it.Number, it.Seq, it.Kernel != nil, it.Event != nil, string(it.Line))
	}
	var got []string
	in := Input{Name: "a", Path: run.Output, Tap: func(e *schema.Evaluation) func(*Item) {
		if e.Workdir != "/app" {
			t.Errorf("the evaluation file is %+v", e)
		}
		return func(it *Item) {
			got = append(got, line(it))
		}
	}}
	r, report, err := in.Verified(t.Context())
	if err != nil || !report.OK() {
		t.Fatal(report, err)
	}
	var want []string
	for it, err := range r.Items(t.Context(), schema.EventsPath, schema.KernelPath) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, line(it))
	}
	if !slices.Equal(got, want) || len(got) < 20_000 {
		t.Errorf("%d lines, want these %d", len(got), len(want))
	}

	in.Path = sealSample(t, "b.tar.gz", 10).Path
	in.Tap = func(*schema.Evaluation) func(*Item) {
		t.Error("a bundle without an evaluation file was tapped")
		return func(*Item) {}
	}
	if _, _, err := in.Verified(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Items decodes the lines of the wanted layers, hands out other wanted members, and names the
// line that is wrong.
func TestItems(t *testing.T) {
	f := sampleFiles(t)
	read := func() (got []string, err error) {
		f.reseal()
		name := filepath.Join(t.TempDir(), "a.tar")
		if err := os.WriteFile(name, joined(f.entries(canonical(f.manifest()))), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for it, err := range r.Items(t.Context(), schema.ResultPath, schema.PolicyPath, schema.KernelPath) {
			switch {
			case err != nil:
				return got, err
			case it.Member != nil:
				data, err := io.ReadAll(it.Member)
				if err != nil || string(data) != string(f[it.Path]) {
					t.Errorf("%s: %q, %v", it.Path, data, err)
				}
				got = append(got, it.Path)
			default:
				if lines := strings.Split(string(f[it.Path]), "\n"); string(it.Line) != lines[it.Number-1] {
					t.Errorf("%s: line %d is %q", it.Path, it.Number, it.Line)
				}
				got = append(got, fmt.Sprint(it.Path, it.Seq, it.Kernel != nil, it.Policy != nil))
			}
		}
		return got, nil
	}
	got, err := read()
	var want []string
	for i := range strings.Count(string(f[schema.KernelPath]), "\n") {
		want = append(want, fmt.Sprint(schema.KernelPath, i, true, false))
	}
	for i := range strings.Count(string(f[schema.PolicyPath]), "\n") {
		want = append(want, fmt.Sprint(schema.PolicyPath, i, false, true))
	}
	if want = append(want, schema.ResultPath); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, want %q (%v)", got, want, err)
	}
	first, _, _ := strings.Cut(string(f[schema.KernelPath]), "\n")
	f[schema.KernelPath] = []byte(first + "\n{}\n")
	got, err = read()
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), schema.KernelPath+": line 2: ") {
		t.Errorf("after %q: %v", got, err)
	}
}

// Scan yields all lines in their order, each with its own result, whoever stops early or fails.
func TestScan(t *testing.T) {
	const n = 3*batchLines + 7
	r, err := Open(sealSample(t, "a.tar", n).Path)
	if err != nil {
		t.Fatal(err)
	}
	scan := func(fail uint64) (lines int, err error) {
		worker := func() func(*Item) (uint64, error) {
			return func(it *Item) (uint64, error) {
				if it.Seq == fail {
					return 0, io.ErrNoProgress
				}
				return it.Kernel.Seq, nil
			}
		}
		for s, err := range Scan(t.Context(), r, schema.KernelPath, worker) {
			if err != nil {
				return lines, err
			}
			if s.Seq != uint64(lines) || s.Result != s.Seq || s.Kernel.Seq != s.Seq || s.Number != lines+1 ||
				!strings.Contains(string(s.Line), fmt.Sprintf(`"seq":%d,`, lines)) {
				t.Fatalf("at %d: seq %d, result %d, line %d: %s", lines, s.Seq, s.Result, s.Number, s.Line)
			}
			lines++
		}
		return lines, nil
	}
	if lines, err := scan(n); err != nil || lines != n {
		t.Errorf("%d lines, %v", lines, err)
	}
	const bad = batchLines + 3
	if lines, err := scan(bad); lines != bad || !errors.Is(err, io.ErrNoProgress) ||
		!strings.HasPrefix(err.Error(), fmt.Sprintf("%s: line %d: ", schema.KernelPath, bad+1)) {
		t.Errorf("%d lines, %v", lines, err)
	}
	for range Scan(t.Context(), r, schema.KernelPath, func() func(*Item) (int, error) {
		return func(*Item) (int, error) { return 0, nil }
	}) {
		break // which ends the workers: the test binary fails if it leaves any behind
	}
}
