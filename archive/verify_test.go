package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

func TestEveryCodecIsSoundAndHasOneIdentity(t *testing.T) {
	identities := map[string]bool{}
	for _, name := range []string{"a.tar.gz", "b.tar.zst", "c.tar", "d.bundle"} {
		sealed := sealSample(t, name, 2000)
		r := mustBeSound(t, sealed.Path)
		if r.Identity != sealed.Identity || r.RunID != testRunID || r.Lines[schema.KernelPath] != 2000 ||
			r.Members != 14 {
			t.Errorf("%s: report %+v of %+v", name, r, sealed)
		}
		identities[sealed.Identity] = true
	}
	if len(identities) != 1 {
		t.Errorf("identities differ: %v", identities)
	}
}

// A bundle's bytes are a function of what was recorded.
func TestSealingIsDeterministic(t *testing.T) {
	for _, name := range []string{"a.tar.gz", "b.tar.zst"} {
		a, err := os.ReadFile(sealSample(t, name, 5000).Path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(sealSample(t, name, 5000).Path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: two sealings of the same run differ", name)
		}
	}
}

func TestReaderGivesBackWhatWasSealed(t *testing.T) {
	r, err := Open(sealSample(t, "a.tar.zst", 1000).Path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Documents(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if d.Run.RunID != testRunID || d.Result.Outcome != schema.OutcomeExited || d.Contract != nil {
		t.Errorf("documents %+v", d)
	}
	n := 0
	for line, err := range r.Lines(context.Background(), schema.KernelPath) {
		if err != nil {
			t.Fatal(err)
		}
		if want := kernelLine(nil, testRunID, uint64(n)); !bytes.Equal(line, want) {
			t.Fatalf("line %d is %s", n, line)
		}
		n++
	}
	if n != 1000 {
		t.Errorf("%d lines", n)
	}
}

// TestDocumentsTogetherAreBounded: verify keeps the documents until it compares them.
func TestDocumentsTogetherAreBounded(t *testing.T) {
	layertest.Host(t)
	name := filepath.Join(t.TempDir(), "a.tar.gz")
	bundle := inFiles(func(f files) {
		for _, path := range []string{schema.RunPath, schema.ResultPath} {
			f.edit(path, `"run_id"`, `"x":"`+strings.Repeat("x", 40<<20)+`","run_id"`)
		}
	})
	if err := os.WriteFile(name, bundle(sampleFiles(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := Verify(t.Context(), name)
	if err != nil || len(report.Problems) == 0 || report.Problems[0].Code != CodeLimit {
		t.Errorf("%v, %v", err, report.Problems)
	}
}

// Keys that differ in case are other keys, which a reader does not know.
func TestReaderTellsKeysApartByCase(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.tar.gz")
	bundle := inFiles(func(f files) {
		f.edit(schema.RunPath, `"env_keys"`, `"COMMAND": ["rm", "-rf", "/"], "env_keys"`)
		f.edit(schema.RunPath, `"timeout_ms"`, `"Workdir": "/elsewhere", "timeout_ms"`)
		f.edit(schema.PolicyPath, `"run_id"`, `"SCHEMA":"x","run_id"`)
	})
	if err := os.WriteFile(name, bundle(sampleFiles(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, name)
	d := documentsOf(t, name)
	if len(d.Run.Command) != 1 || d.Run.Command[0] == "rm" || d.Run.Workdir != "/" {
		t.Errorf("run %+v", d.Run)
	}
}

// A document with many names is refused before they are read, also in an object below others.
func TestDocumentsOfManyNames(t *testing.T) {
	var many bytes.Buffer
	for i := range 300_000 {
		fmt.Fprintf(&many, `"k\"{%d": 0, `, i)
	}
	for place, member := range map[string]string{"{": schema.ResultPath, `"layers": {`: schema.HealthPath} {
		name := filepath.Join(t.TempDir(), "a.tar.gz")
		bundle := inFiles(func(f files) { f.edit(member, place, place+many.String()) })
		if err := os.WriteFile(name, bundle(sampleFiles(t)), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		report := verified(t, name)
		runtime.ReadMemStats(&after)
		if len(report.Problems) == 0 || report.Problems[0].Code != CodeLimit || report.Problems[0].Member != member {
			t.Errorf("%s: %+v", member, report.Problems)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: verifying took %d bytes", member, used)
		}
		in, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Documents(context.Background(), schema.SurfacePath); err == nil ||
			!strings.Contains(err.Error(), "more than 65536 names") {
			t.Errorf("%s: it was read: %v", member, err)
		}
	}
}

// Every single changed byte of a plain tar is noticed, and so is every cut.
func TestNoChangeGoesUnnoticed(t *testing.T) {
	layertest.Host(t)
	b, err := os.ReadFile(sealSample(t, "a.tar", 3).Path)
	if err != nil {
		t.Fatal(err)
	}
	name := t.TempDir() + "/b.tar"
	const step = 17 // all offsets within a header come by, over its repeats
	for i := 0; i < len(b); i += step {
		b[i] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if verified(t, name).OK() {
			t.Errorf("byte %d changed: nothing noticed", i)
		}
		b[i] ^= 1
	}
	for i := 0; i < len(b); i += 97 * step {
		if err := os.WriteFile(name, b[:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, name); r.Class() != Damaged && r.Class() != Unreadable {
			t.Errorf("cut at %d: %v", i, r.Problems)
		}
	}
}

func TestVerifyStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Verify(ctx, sealSample(t, "a.tar.gz", 10).Path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestSealStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	run := testRun(t)
	s, dir := newSpool(t, run)
	record(t, s, 10)
	if _, err := s.Seal(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(run.Output)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if list, _ := ListSpools(dir); len(list) != 1 || list[0].Alive {
		t.Errorf("spools %+v", list)
	}
}

// What a bundle says reaches a terminal only as far as it is fit to print.
func TestProblemsAreFitToPrint(t *testing.T) {
	p := problem(CodeHealth, "", "hook %s", "\x1b[31mred\n\u202eevil"+strings.Repeat("x", 5000))
	if strings.ContainsAny(p.Error(), "\x1b\n\u202e") || len(p.Error()) > 1200 {
		t.Errorf("message %q", p.Error())
	}
}
