package main

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// TestFloodsUnderARun: whatever a client sends, each of its calls is answered
// and recorded once, and the runner's memory is bounded.
func TestFloodsUnderARun(t *testing.T) {
	layertest.Host(t)
	count := 10_000
	if layertest.IsNight() {
		count = 100_000
	}
	for _, c := range []struct {
		name  string
		count int
		args  []string
		most  int // MiB
	}{
		{"calls that are answered", count, []string{"0"}, 256},
		{"callbacks that are never answered", count, []string{"0", "50"}, 256},
		{"calls of 64 KiB that are never answered", count / 10, []string{"65536", "1000"}, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			_, r, out := agent(t, []string{"--kernel", "off"},
				append([]string{"flood", strconv.Itoa(c.count)}, c.args...)...)
			var said struct {
				Kinds map[string]uint64
				Peak  int
			}
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%v, %d MiB, %v", said.Kinds, said.Peak, time.Since(began))
			if said.Peak > c.most {
				t.Errorf("the runner had %d MiB", said.Peak)
			}
			kinds := map[string]uint64{}
			n := layerLines(t, r, schema.AuditPath, func(line []byte) {
				e, err := schema.ParseCallEvent(line)
				if err != nil {
					t.Fatal(err)
				}
				kinds[e.Outcome.Kind]++
			})
			if d := cmp.Diff(kinds, said.Kinds); d != "" || n != uint64(c.count) {
				t.Errorf("%d call events (-layer +answers):\n%s", n, d)
			}
			if turns := layerLines(t, r, schema.TurnsPath, func([]byte) {}); turns != uint64(c.count) {
				t.Errorf("%d turns", turns)
			}
		})
	}
}

// TestHalfMessagesUnderARun: clients that stop in the middle of a message keep
// no other out for long, and cost no memory to speak of.
func TestHalfMessagesUnderARun(t *testing.T) {
	layertest.Host(t)
	began := time.Now()
	_, _, out := agent(t, []string{"--kernel", "off"}, "halves")
	var said struct{ Refused, Full, Waiting, Peak int }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v, %v", said, time.Since(began))
	if said.Full < 100 || said.Waiting == 0 || said.Peak > 400 {
		t.Errorf("%d were told that there is no room, %d waited, the runner had %d MiB", said.Full, said.Waiting,
			said.Peak)
	}
}
