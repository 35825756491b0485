package gateway

import (
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
					turns = append(turns, fmt.Sprintf(`{"tool":"w%d","parameters":{"b":%d,"i":%d},"index":%d}`, w, b, i,
						7))
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
	lines := f.rec.Lines(t, schema.TurnsPath)
	if len(lines) != clients*batches*size || f.rec.Writes(schema.TurnsPath) != clients*batches {
		t.Fatalf("%d turns in %d writes, want %d in %d", len(lines), f.rec.Writes(schema.TurnsPath),
			clients*batches*size, clients*batches)
	}
	for i, line := range lines {
		want := fmt.Sprintf(`"i":%d}`, i%size)
		if !strings.Contains(line, want) || !strings.Contains(line, fmt.Sprintf(`"index":%d,`, i)) ||
			seen[i] != uint64(i) {
			t.Fatalf("turn %d, followed as %d: %s", i, seen[i], line)
		}
		if i%size > 0 && toolOf(line) != toolOf(lines[i-1]) {
			t.Fatalf("a batch is torn apart at turn %d", i)
		}
	}
}

func toolOf(line string) string {
	_, rest, _ := strings.Cut(line, `"tool":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func TestWhatIsCutIsCounted(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.BlobBytes = 1 })
	c := dial(t, f.path)
	leftOut := schema.ResultLeftOut +
		`"bytes":1,"data":{"code":"FS_NOT_FOUND","retryable":false},"head":"h","tail":"t"}`
	answers := [][2]string{{`"` + strings.Repeat("x", 20_000) + `"`, ""}, {schema.ResultLeftOut + `"bytes":1}`, ""},
		{`"short"`, ""}, {"", leftOut}}
	c.tool = func(toolsExecute) (string, string) {
		answer := answers[0]
		answers = answers[1:]
		return answer[0], answer[1]
	}
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t"}]`)
	for range 4 {
		c.submit("t", "{}")
	}
	if n := f.Cut(); n != 3 {
		t.Errorf("%d values are not whole, want 3", n)
	}
	f.end(t)
	turns := f.rec.Lines(t, schema.TurnsPath)
	if last := turns[len(turns)-1]; !strings.Contains(last, `"error":"FS_NOT_FOUND"`) ||
		!strings.Contains(last, leftOut) {
		t.Errorf("the turn of an error that was left out is %s", last)
	}
	var session schema.GatewaySession
	if readDocument(t, f.rec, schema.SessionPath, &session); session.Cut != 3 {
		t.Errorf("the session says %d", session.Cut)
	}
}
