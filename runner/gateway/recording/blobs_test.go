package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

func TestATurnStaysUnderItsCapsWhateverItHolds(t *testing.T) {
	rec := recordingtest.New(t.TempDir())
	defer rec.Close()
	o := Options{Turns: specfile.Turns{}.Effective(), BlobBytes: 1 << 30, BlobMin: 4 << 10}
	long := strings.Repeat("k", 100_000)
	for name, value := range map[string]string{
		"one long text": `"` + strings.Repeat("é", 100_000) + `"`,
		"texts under long keys": `{"` + long + `":[` + strings.Repeat(`"`+strings.Repeat("x", 5000)+`",`, 700) +
			`1]}`,
		"many numbers":                "[" + strings.Repeat("1,", 500_000) + "1]",
		"many texts of one kind":      "[" + strings.Repeat(`"`+strings.Repeat("a", 17_000)+`",`, 200) + "1]",
		"texts of control characters": `["` + strings.Repeat(`\u0001`, 100_000) + `"]`,
	} {
		r := New(Recording{RunID: "run_1", Recorder: rec}, o)
		for range 3 {
			turns := []schema.TurnBody{{Tool: "t", Parameters: []byte(value), Output: []byte(value),
				VerifierVerdict: "not_run", Source: "gateway", Prompt: &long}}
			if _, err := r.Record(turns); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			body := turns[0]
			if n := len(body.Parameters) + len(body.Output) + len(*body.Prompt); n > int(o.Turns.TurnBytes) {
				t.Errorf("%s: %d bytes", name, n)
			}
			if len(body.Cut)+len(body.Blobs) == 0 {
				t.Errorf("%s: nothing says what was cut", name)
			}
		}
	}
	for _, line := range rec.Lines(t, schema.TurnsPath) {
		if len(line) > 512<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// The notes about a value that was cut completely are about the whole value only.
func TestAValueThatIsCutAsAWhole(t *testing.T) {
	rec := recordingtest.New(t.TempDir())
	defer rec.Close()
	o := Options{Turns: specfile.Turns{FieldBytes: 64, TurnBytes: 200}.Effective(), BlobBytes: 1, BlobMin: 4 << 10}
	long := strings.Repeat("x", 5000)
	for name, value := range map[string]string{
		"cut texts": `{"a":"` + long + `","b":"` + long[:100] + `","c":"` + long[:100] + `","d":"` + long[:100] +
			`"}`,
		"too many":      "[" + strings.Repeat(`"`+long+`",`, 300) + "1]",
		"a long key":    `{"` + long + `":"` + long + `"}`,
		"one long text": `"` + long + `"`,
	} {
		blobs := newBlobStore(rec, &o)
		for range 3 {
			body := schema.TurnBody{Parameters: []byte(value), Output: []byte(`"` + long[:100] + `"`), Prompt: &long}
			blobs.trim(&body)
			said := map[string]bool{}
			for _, c := range body.Cut {
				if c.Path == "/parameters" && string(body.Parameters) == "null" {
					if sum := sha256.Sum256([]byte(value)); c.Bytes != len(value) || c.Kept != 0 ||
						c.SHA256 != digest(sum) {
						t.Errorf("%s: %+v is not about the value of %d bytes", name, c, len(value))
					}
				}
				said[c.Path] = true
			}
			for _, b := range body.Blobs {
				said[b.Path] = true
			}
			if string(body.Parameters) != "null" {
				if name != "one long text" {
					t.Errorf("%s: it is not cut", name)
				}
				continue
			}
			for path := range said {
				if strings.HasPrefix(path, "/parameters/") {
					t.Errorf("%s: %s is told of, and not there", name, path)
				}
			}
		}
	}
}

// A tool's output is kept completely, or marked as cut: a text keeps its start and its end.
func TestLargeTextsAreKeptWhole(t *testing.T) {
	rec := recordingtest.New(t.TempDir())
	defer rec.Close()
	large := strings.Repeat("é", 100_000) + "error: the end"
	quoted, numbers := []byte(`"`+large+`"`), []byte("["+strings.Repeat("1,", 500_000)+"1]")
	o := Options{Turns: specfile.Turns{}.Effective(), BlobBytes: 1 << 30, BlobMin: 4 << 10}
	blobs := newBlobStore(rec, &o)
	name := func(b []byte) string {
		return schema.BlobsDir + strings.TrimPrefix(digest(sha256.Sum256(b)), "sha256:")
	}
	for i := range 3000 { // no number of them is too many
		text := fmt.Sprintf("%d %s", i, large[:20_000])
		body := schema.TurnBody{Output: []byte(`{"stdout":"` + text + `"}`)}
		if blobs.trim(&body); len(body.Blobs) != 1 || string(body.Output) != `{"stdout":"`+name([]byte(text))+`"}` {
			t.Fatalf("text %d: %s", i, body.Output[:100])
		}
	}
	body := schema.TurnBody{Parameters: numbers, Output: quoted}
	blobs.trim(&body)
	want := []schema.BlobRef{
		{Path: "/output", Bytes: len(large), SHA256: digest(sha256.Sum256([]byte(large)))},
		{Path: "/parameters", Bytes: len(numbers), SHA256: digest(sha256.Sum256(numbers)), JSON: true},
	}
	if d := cmp.Diff(want, body.Blobs); d != "" || len(body.Cut) > 0 || blobs.cut > 0 {
		t.Errorf("%d values cut, %d counted: %s", len(body.Cut), blobs.cut, d)
	}
	for _, whole := range [][]byte{[]byte(large), numbers} {
		if data, err := os.ReadFile(filepath.Join(rec.Dir, name(whole))); err != nil || !bytes.Equal(data, whole) {
			t.Errorf("%s has not all of it: %v", name(whole), err)
		}
	}
	// Beyond the room that there is for them.
	o.BlobBytes = int64(len(large)) - 1
	blobs = newBlobStore(rec, &o)
	body = schema.TurnBody{Output: quoted}
	blobs.trim(&body)
	var text string
	if err := json.Unmarshal(body.Output, &text); err != nil || len(body.Cut) != 1 || blobs.cut != 1 {
		t.Fatalf("%v, %d values cut, %d counted", err, len(body.Cut), blobs.cut)
	}
	c := body.Cut[0]
	if head, tail := text[:c.Kept], text[len(text)-c.Tail:]; c.Kept+c.Tail > int(o.Turns.FieldBytes) ||
		c.Kept+c.Tail < int(o.Turns.FieldBytes)-8 ||
		!strings.HasPrefix(large, head) || !strings.HasSuffix(large, tail) ||
		!strings.HasSuffix(tail, "error: the end") || !strings.Contains(text, "bytes left out") {
		t.Errorf("%+v: %.40s … %s", c, text, text[len(text)-20:])
	}
}
