package evidence

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// documents is a Recorder that stores documents and their order.
type documents struct {
	order []string
	last  map[string]string
}

func (*documents) Append(_ string, encode func([]byte, uint64) []byte) error {
	encode(nil, 0)
	return nil
}
func (*documents) AppendBatch(string, int, func([]byte, uint64, int) []byte) error { return nil }
func (*documents) Create(string) (io.WriteCloser, error)                           { panic("not for documents") }
func (*documents) Sync() error                                                     { return nil }
func (*documents) Failed() error                                                   { return nil }
func (*documents) Counts(string) schema.LayerCounts                                { return schema.LayerCounts{} }

func (d *documents) Put(path string, data []byte) error {
	d.order = append(d.order, path)
	d.last[path] = string(data)
	return nil
}

// Late reasons are in observation-health.json, and count; if result.json exists, everything before it exists too.
func TestWhatIsKnownLateIsInTheHealth(t *testing.T) {
	for name, late := range map[string][]schema.Reason{"nothing": nil,
		"a reason": {{Subject: "cgroup", Code: "cgroup_left"}}} {
		t.Run(name, func(t *testing.T) {
			d := &documents{last: map[string]string{}}
			l := New(Config{RunID: "r", Recorder: d, Clock: func() time.Duration { return 0 }})
			var judged []schema.Reason
			err := l.Finish(Findings{
				Result: &schema.Result{}, Calls: NewCalls(l, binding.Options{}),
				Late: func() []schema.Reason {
					if slices.Contains(d.order, schema.ResultPath) {
						t.Error("the result was written before")
					}
					return late
				},
				Settle: func(h *schema.ObservationHealth, _ error) { judged = h.Reasons },
			})
			if err != nil {
				t.Fatal(err)
			}
			if d.order[len(d.order)-1] != schema.ResultPath {
				t.Errorf("the result is not the last document: %v", d.order)
			}
			if len(judged) != len(late) ||
				strings.Contains(d.last[schema.HealthPath], `"cgroup_left"`) != (len(late) > 0) {
				t.Errorf("judged: %v; written:\n%s", judged, d.last[schema.HealthPath])
			}
		})
	}
}
