package archive

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// modelRun is a run with a model gateway.
func modelRun(t testing.TB) schema.Run {
	run := testRun(t)
	run.Model = &schema.RunModel{Routes: []string{"anthropic"}}
	return run
}

// request adds a request to a model, whose answer is a blob.
func request(t testing.TB, s *Spool, blob string) {
	t.Helper()
	err := s.Append(schema.ModelPath, func(b []byte, seq uint64) []byte {
		line, err := schema.Line(schema.ModelEvent{Schema: schema.ModelEventV0, RunID: testRunID, Seq: seq,
			ModelEventBody: schema.ModelEventBody{
				Method: "POST", Path: "/anthropic/v1/messages", FinishReasons: []string{},
				ToolCalls: []schema.ModelToolCall{}, ToolResults: []schema.ModelToolResult{},
				Response: schema.ModelBody{Bytes: 3, Text: true, Body: []byte(`"` + schema.BlobsDir + blob + `"`)},
			}})
		if err != nil {
			t.Fatal(err)
		}
		return append(b, line[:len(line)-1]...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestModelLayer(t *testing.T) {
	run := modelRun(t)
	run.Output = filepath.Join(t.TempDir(), "with.tar.gz")
	s, _ := newSpool(t, run)
	request(t, s, strings.Repeat("a", 64))
	record(t, s, 1)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if n := mustBeSound(t, sealed.Path).Lines[schema.ModelPath]; n != 1 {
		t.Errorf("the layer has %d lines, want 1", n)
	}
	without := sealSample(t, "without.tar.gz", 1)
	if _, ok := mustBeSound(t, without.Path).Lines[schema.ModelPath]; ok {
		t.Error("a run without a gateway has a model layer")
	}
}

// A run with a gateway has the layer, and a run without has none: one cannot be taken for the other.
func TestModelLayerIsWhatTheRunSays(t *testing.T) {
	for _, tt := range []struct {
		name string
		says bool // whether run.json of the sealed bundle says that there was a gateway
		code Code
	}{{"a layer was taken away", true, CodeRequired}, {"a layer was added", false, CodeSchema}} {
		t.Run(tt.name, func(t *testing.T) {
			run := modelRun(t)
			run.Output = filepath.Join(t.TempDir(), "out.tar.gz")
			s, _ := newSpool(t, run)
			record(t, s, 1)
			if tt.says {
				delete(s.layers, schema.ModelPath)
				s.run.Model = nil
			}
			sources, err := s.sources()
			if err != nil {
				t.Fatal(err)
			}
			sources = slices.DeleteFunc(sources, func(src source) bool { return src.path == schema.ModelPath })
			for _, p := range s.run.Layers() {
				if !slices.ContainsFunc(sources, func(src source) bool { return src.path == p }) {
					sources = append(sources, source{path: p})
				}
			}
			said := testRun(t)
			if tt.says {
				said = modelRun(t)
			}
			said.Output = ""
			doc, err := schema.Document(said)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, source{path: schema.RunPath, size: int64(len(doc)), data: doc})
			out, err := OpenOutput(run.Output, false)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			sealed, err := writeBundle(context.Background(), run, out, sources, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := verified(t, sealed.Path)
			if !slices.ContainsFunc(r.Problems, func(p Problem) bool {
				return p.Code == tt.code && p.Member == schema.ModelPath
			}) {
				t.Errorf("problems are %v, want a %s of %s", r.Problems, tt.code, schema.ModelPath)
			}
		})
	}
}

func TestRecoverModelLayer(t *testing.T) {
	s, dir := newSpool(t, modelRun(t))
	request(t, s, strings.Repeat("a", 64))
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	if err := s.Close(); err != nil { // as if it had been killed
		t.Fatal(err)
	}
	sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := mustBeSound(t, sealed.Path).Lines[schema.ModelPath]; n != 1 {
		t.Errorf("the layer has %d lines, want 1", n)
	}
	r, err := Open(sealed.Path)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := r.Documents(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if h := docs.Health; h.ModelLayer != schema.Partial || h.ModelPath != schema.Unknown {
		t.Errorf("model_layer is %q and model_path %q", h.ModelLayer, h.ModelPath)
	}
}

// A layer that the run does not have is not the recorder's.
func TestRecoverLeavesOutAPlantedModelLayer(t *testing.T) {
	s, dir := newSpool(t, testRun(t))
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	layers := filepath.Join(dir, testRunID, "layers")
	if err := os.MkdirAll(layers, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(layers, "model.ndjson"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sealed, err := Recover(context.Background(), dir, testRunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed.Tampered) == 0 {
		t.Error("nobody noticed the layer")
	}
	if _, ok := mustBeSound(t, sealed.Path).Lines[schema.ModelPath]; ok {
		t.Error("the layer is in the bundle")
	}
}

// A secret that is taken out of a blob gives it another name, also in the lines that refer to it.
func TestRedactBlobOfModelLayer(t *testing.T) {
	run := modelRun(t)
	run.Output = filepath.Join(t.TempDir(), "out.tar.gz")
	s, _ := newSpool(t, run)
	text := []byte("the code is hunter2hunter2, of course")
	name := strings.TrimPrefix(digest(sha256.Sum256(text)), "sha256:")
	if err := s.Put(schema.BlobsDir+name, text); err != nil {
		t.Fatal(err)
	}
	request(t, s, name)
	record(t, s, 1)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r := redact.New([]byte("a key for this test"))
	r.Keep(testRunID)
	r.Add(redact.RuleGiven, "hunter2hunter2")
	clean := filepath.Join(t.TempDir(), "clean.tar.gz")
	if _, err := Redact(context.Background(), sealed.Path, clean, r, RedactOptions{By: "test"}); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, clean)
	b, err := Open(clean)
	if err != nil {
		t.Fatal(err)
	}
	blob := ""
	for path := range b.Manifest().Files {
		if n, ok := strings.CutPrefix(path, schema.BlobsDir); ok {
			blob = n
		}
	}
	if blob == "" || blob == name {
		t.Fatalf("the blob is %q; want one without the secret", blob)
	}
	for line, err := range b.Lines(context.Background(), schema.ModelPath) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(line), blob) || strings.Contains(string(line), name) {
			t.Errorf("the line does not refer to %s: %s", blob, line)
		}
	}
}
