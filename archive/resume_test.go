package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// A run whose recorder died goes on where its lines end, and its bundle is sealed as
// any other.
func TestASpoolGoesOn(t *testing.T) {
	run := testRun(t)
	s, dir := newSpool(t, run)
	add := func(s *Spool, n int) {
		t.Helper()
		for range n {
			if err := s.Append(schema.KernelPath, func(dst []byte, seq uint64) []byte {
				return kernelLine(dst, run.RunID, seq)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(s, 3)
	blob := schema.BlobsDir + "0000000000000000000000000000000000000000000000000000000000000000"
	if err := errors.Join(s.Put(blob, []byte("text")), s.Close()); err != nil {
		t.Fatal(err)
	}
	layer := layerFile(s.Dir(), schema.KernelPath)
	f, err := os.OpenFile(layer, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"torn`)
	f.Close()

	s, err = ResumeSpool(dir, run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ResumeSpool(dir, run.RunID); !errors.Is(err, ErrAlive) {
		t.Errorf("a second one takes it: %v", err)
	}
	add(s, 2)
	if got, want := s.Counts(schema.KernelPath), (schema.LayerCounts{Seen: 6, Written: 5, Dropped: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	sealed, err := s.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed.Tampered) > 0 {
		t.Errorf("tampered: %v", sealed.Tampered)
	}
	_, content := members(t, sealed.Path)
	if content[blob] != "text" {
		t.Errorf("the blob is %q", content[blob])
	}
	if _, err := ResumeSpool(dir, run.RunID); !errors.Is(err, ErrNoSpool) {
		t.Errorf("a sealed run: %v", err)
	}
}

// How many lines were dropped is not known once the recorder has died. So a run that
// dropped any does not go on, and its bundle says that more may be missing.
func TestASpoolThatDroppedLinesDoesNotGoOn(t *testing.T) {
	for name, lose := range map[string]func(s *Spool) error{
		"a line that is too long": func(s *Spool) error {
			return s.Append(schema.TurnsPath, func(dst []byte, _ uint64) []byte {
				return append(dst, make([]byte, MaxLine)...)
			})
		},
		"a batch with such a line": func(s *Spool) error {
			return s.AppendBatch(schema.TurnsPath, 1, func(dst []byte, _ uint64, _ int) []byte {
				return append(dst, make([]byte, MaxLine)...)
			})
		},
		"a write that failed": func(s *Spool) error {
			s.layers[schema.TurnsPath].file.Close()
			return s.Append(schema.TurnsPath, func(dst []byte, _ uint64) []byte { return append(dst, "{}"...) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, dir := newSpool(t, run)
			l := s.layers[schema.TurnsPath]
			if err := l.begin(); err != nil {
				t.Fatal(err)
			}
			if lose(s) == nil {
				t.Fatal("nothing was dropped")
			}
			s.Close()
			if _, err := ResumeSpool(dir, run.RunID); !errors.Is(err, errNotResumable) {
				t.Errorf("it goes on: %v", err)
			}
			if _, err := Recover(t.Context(), dir, run.RunID, RecoverOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is not as it was written does not go on.
func TestADamagedSpoolDoesNotGoOn(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"a line that is not one": func(t *testing.T, dir string) {
			if err := os.WriteFile(layerFile(dir, schema.KernelPath), []byte("{}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"captured output": func(t *testing.T, dir string) {
			os.MkdirAll(filepath.Join(dir, "stdio"), 0o700)
			if err := os.WriteFile(layerFile(dir, schema.StdoutPath), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, dir := newSpool(t, run)
			if err := errors.Join(s.Begin(schema.KernelPath), s.Close()); err != nil {
				t.Fatal(err)
			}
			damage(t, s.Dir())
			if _, err := ResumeSpool(dir, run.RunID); !errors.Is(err, errNotResumable) {
				t.Fatalf("it goes on: %v", err)
			}
			if _, err := Recover(t.Context(), dir, run.RunID, RecoverOptions{}); err != nil {
				t.Errorf("nor is it sealed: %v", err)
			}
		})
	}
}
