package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/runner/gateway/recording"
)

// An error that is too large for a message keeps its code, its start and its end.
func TestALargeErrorKeepsItsCodeAndEnds(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	for failure, want := range map[string]string{
		`{"code":-32000,"message":"began ` + long +
			` ended","data":{"code":"FS_NOT_FOUND","retryable":false}}`: `{"code":"FS_NOT_FOUND","retryable":false}`,
		`{"code":-32000,"message":"began ` + long + ` ended"}`:                   `{"code":-32000}`,
		`{"code":-32000,"message":"began","data":{"code":"` + long + ` ended"}}`: `{"code":-32000}`,
		`["began ` + long + ` ended"]`:                                           `{}`,
	} {
		out := leftOut([]byte(failure))
		var got struct {
			Bytes      int
			Data       json.RawMessage
			Head, Tail string
		}
		if err := json.Unmarshal(out, &got); err != nil || !recording.IsLeftOut(out) || len(out) > 3*maxPart {
			t.Fatalf("%v: %d bytes", err, len(out))
		}
		if string(got.Data) != want || got.Bytes != len(failure) || !strings.Contains(got.Head, "began") ||
			!strings.Contains(got.Tail, "ended") {
			t.Errorf("%d bytes, data %s, head %.60s", got.Bytes, got.Data, got.Head)
		}
	}
}
