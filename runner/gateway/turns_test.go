package gateway

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

func TestConcurrentBatchesAreContiguousAndFollowersSeeEachTurnOnce(t *testing.T) {
	const clients, batches, size = 16, 40, 25
	f := start(t, nil)
	first := dial(t, f.path)
	first.must("runs.start", `{"agent_id":"a","intent":""}`)

	var seen []uint64
	var follow sync.Mutex
	all := make(chan struct{})
	note := func(turns jsontext.Value) {
		var list []struct {
			Index uint64 `json:"index"`
		}
		if err := json.Unmarshal(turns, &list); err != nil {
			t.Error(err)
		}
		follow.Lock()
		defer follow.Unlock()
		for _, turn := range list {
			seen = append(seen, turn.Index)
		}
		if len(seen) == clients*batches*size {
			close(all)
		}
	}
	var wg sync.WaitGroup
	for w := range clients {
		c := dial(t, f.path)
		wg.Go(func() {
			for b := range batches {
				var turns []string
				for i := range size {
					turns = append(turns, fmt.Sprintf(`{"tool":"w%d","parameters":{"b":%d,"i":%d},"index":%d}`, w, b, i, 7))
				}
				var r struct {
					First uint64 `json:"first_index"`
				}
				res, err := c.call("runs.record_turns", `{"run_id":"run_1","turns":[`+strings.Join(turns, ",")+`]}`)
				if err != nil || json.Unmarshal([]byte(res), &r) != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watcher := dial(t, f.path)
	watcher.notified = func(method string, params jsontext.Value) {
		var p struct {
			Turns jsontext.Value `json:"turns"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			t.Error(err)
		}
		note(p.Turns)
	}
	follow.Lock() // the answer's turns come first
	var sub struct {
		Turns jsontext.Value `json:"turns"`
	}
	if err := json.Unmarshal([]byte(watcher.must("runs.subscribe", `{"run_id":"run_1"}`)), &sub); err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Index uint64 `json:"index"`
	}
	json.Unmarshal(sub.Turns, &list)
	for _, turn := range list {
		seen = append(seen, turn.Index)
	}
	if len(seen) == clients*batches*size {
		close(all)
	}
	follow.Unlock()
	wg.Wait()
	select {
	case <-all:
	case <-time.After(30 * time.Second):
		t.Error("the follower did not see all turns")
	}
	f.end(t)
	lines := f.rec.lines(t, schema.TurnsPath, schema.TurnV0)
	if len(lines) != clients*batches*size || f.rec.writes[schema.TurnsPath] != clients*batches {
		t.Fatalf("%d turns in %d writes, want %d in %d", len(lines), f.rec.writes[schema.TurnsPath], clients*batches*size, clients*batches)
	}
	for i, line := range lines {
		want := fmt.Sprintf(`"i":%d}`, i%size)
		if !strings.Contains(line, want) || !strings.Contains(line, fmt.Sprintf(`"index":%d,`, i)) || seen[i] != uint64(i) {
			t.Fatalf("turn %d, followed as %d: %s", i, seen[i], line)
		}
		if i%size > 0 && toolOf(line) != toolOf(lines[i-1]) {
			t.Fatalf("a batch is torn apart at turn %d", i)
		}
	}
}

func TestATurnStaysUnderItsCapsWhateverItHolds(t *testing.T) {
	rec := newFileRecorder(t.TempDir())
	defer rec.close()
	cfg := Config{Turns: Turns{}.Effective()}
	cfg.Limits.setDefaults()
	long := strings.Repeat("k", 100_000)
	for name, value := range map[string]string{
		"one long text":               `"` + strings.Repeat("é", 100_000) + `"`,
		"texts under long keys":       `{"` + long + `":[` + strings.Repeat(`"`+strings.Repeat("x", 5000)+`",`, 700) + `1]}`,
		"many numbers":                "[" + strings.Repeat("1,", 500_000) + "1]",
		"many texts of one kind":      "[" + strings.Repeat(`"`+strings.Repeat("a", 17_000)+`",`, 200) + "1]",
		"texts of control characters": `["` + strings.Repeat(`\u0001`, 100_000) + `"]`,
	} {
		r := newRecording(Recording{RunID: "run_1", Recorder: rec}, 0, newScope(nil), &cfg)
		for range 3 {
			body := schema.TurnBody{Tool: "t", Parameters: []byte(value), Output: []byte(value), VerifierVerdict: "not_run", Source: "gateway", Prompt: &long}
			r.blobs.trim(&body)
			if _, err := r.record([]schema.TurnBody{body}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := len(body.Parameters) + len(body.Output) + len(*body.Prompt); n > cfg.Turns.TurnBytes {
				t.Errorf("%s: %d bytes", name, n)
			}
			if len(body.Cut)+len(body.Blobs) == 0 {
				t.Errorf("%s: nothing says what was cut", name)
			}
		}
	}
	for _, line := range rec.lines(t, schema.TurnsPath, schema.TurnV0) {
		if len(line) > 512<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

// What is said of a value that was cut as a whole is about all of it, and nothing
// else is said of it.
func TestAValueThatIsCutAsAWhole(t *testing.T) {
	rec := newFileRecorder(t.TempDir())
	defer rec.close()
	cfg := Config{Turns: Turns{FieldBytes: 64, TurnBytes: 200}.Effective()}
	cfg.Limits.setDefaults()
	long := strings.Repeat("x", 5000)
	for name, value := range map[string]string{
		"cut texts":     `{"a":"` + long + `","b":"` + long[:100] + `","c":"` + long[:100] + `","d":"` + long[:100] + `"}`,
		"too many":      "[" + strings.Repeat(`"`+long+`",`, 300) + "1]",
		"a long key":    `{"` + long + `":"` + long + `"}`,
		"one long text": `"` + long + `"`,
	} {
		blobs := newBlobStore(rec, &cfg)
		for range 3 { // texts seen again are blobs
			body := schema.TurnBody{Parameters: []byte(value), Output: []byte(`"` + long[:100] + `"`), Prompt: &long}
			blobs.trim(&body)
			said := map[string]bool{}
			for _, c := range body.Cut {
				if c.Path == "/parameters" && string(body.Parameters) == "null" {
					if sum := sha256.Sum256([]byte(value)); c.Bytes != len(value) || c.Kept != 0 || c.SHA256 != digest(sum) {
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

func toolOf(line string) string {
	_, rest, _ := strings.Cut(line, `"tool":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}
