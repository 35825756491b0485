package schema

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The first and the last line of a lifecycle, as others read and write them: what they
// say, an Event says with the same names, types and values.
func TestLifecycleLinesOfOthers(t *testing.T) {
	data, err := os.ReadFile("testdata/wire/lifecycle.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ours, err := json.Marshal(&e)
		var want, got map[string]any
		if err == nil {
			err = json.Unmarshal(line, &want)
		}
		if err == nil {
			err = json.Unmarshal(ours, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		for key := range want {
			if diff := cmp.Diff(want[key], got[key]); diff != "" {
				t.Errorf("%s (-theirs +ours): %s", key, diff)
			}
		}
	}
}
