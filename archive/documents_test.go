package archive

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// Wherever a recorder is killed between the documents of the end, recovery seals a sound bundle,
// and only one that has all of them is of a run that ended.
func TestDocumentsOfTheEndAreRecovered(t *testing.T) {
	for missing := range 1 << (len(documents) - 1) {
		s, dir := newSpool(t, testRun(t))
		record(t, s, 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for i, path := range documents[1:] {
			if missing>>i&1 != 0 {
				if err := os.Remove(layerFile(s.Dir(), path)); err != nil {
					t.Fatal(err)
				}
			}
		}
		output := filepath.Join(t.TempDir(), "cut.tar.gz")
		if _, err := Recover(context.Background(), dir, testRunID, RecoverOptions{Output: output}); err != nil {
			t.Fatalf("without %b: %v", missing, err)
		}
		mustBeSound(t, output)
		want := schema.OutcomeIncomplete
		if missing == 0 {
			want = schema.OutcomeExited
		}
		if got := documentsOf(t, output).Result.Outcome; got != want {
			t.Errorf("without %b: %s, want %s", missing, got, want)
		}
	}
}

// Of a document that was put more than once, the last is recovered.
func TestTheLastDocumentIsRecovered(t *testing.T) {
	small := func(text string) []byte { return []byte(`{"schema":"` + text + `"}`) }
	large := func(text string) []byte { return []byte(text + strings.Repeat(" ", maxHeldDocument)) }
	for name, put := range map[string][][]byte{
		"small, small":        {small("a"), small("b")},
		"small, large":        {small("a"), large("b")},
		"large, small":        {large("a"), small("b")},
		"large, small, large": {large("a"), small("b"), large("c")},
		"small, large, small": {small("a"), large("b"), small("c")},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newSpool(t, testRun(t))
			for _, data := range put {
				if err := s.Put(schema.HealthPath, data); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			sources, err := spoolSources(s.Dir(), nil)
			if err != nil || len(sources) != 1 || sources[0].path != schema.HealthPath {
				t.Fatalf("%v, %v", sources, err)
			}
			var got bytes.Buffer
			if err := sources[0].copyTo(&got); err != nil || !bytes.Equal(got.Bytes(), put[len(put)-1]) {
				t.Errorf("recovered %.20q (%v)", got.Bytes(), err)
			}
		})
	}
}

// Documents that were put are not resumed from: their run had ended.
func TestARunWithDocumentsOfItsEndIsNotResumed(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	if err := s.Put(schema.ResultPath, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := ResumeSpool(dir, testRunID); !errors.Is(err, errNotResumable) {
		t.Errorf("resumed: %v", err)
	}
}
