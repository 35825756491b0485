package toolschema

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

func TestNumbersKeepTheirKind(t *testing.T) {
	for raw, want := range map[string]any{
		`7`: int64(7), `-9223372036854775808`: int64(-1 << 63), `18446744073709551615`: uint64(1<<64 - 1), `1.0`: 1.0,
		`1.5`: 1.5,
		`"1"`: "1", `true`: true, `false`: false, `null`: nil, `[]`: []any{}, `{}`: map[string]any{},
		`{"a\u0062":[1,{"c":[null,"\n"]}],"d":{}}`: map[string]any{
			"ab": []any{int64(1), map[string]any{"c": []any{nil, "\n"}}}, "d": map[string]any{},
		},
	} {
		var got exact
		if err := json.Unmarshal([]byte(raw), &got); err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if diff := cmp.Diff(want, got.value); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
	for _, raw := range []string{``, `{`, `{"a"}`, `{"a":}`, `{"a":1,"a":2}`, `[1,`, `[1]]`, `1 2`, `"`, `{1:2}`,
		"\"\xff\""} {
		if err := json.Unmarshal([]byte(raw), new(exact)); err == nil {
			t.Errorf("%q was decoded", raw)
		}
	}
}

func TestACheckSaysWhatIsWrong(t *testing.T) {
	p, err := Compile([]byte(
		`{"type":"object","properties":{"n":{"type":"integer","maximum":9},"l":{"items":{"type":"string"}}},"required":["n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		`{"n":9}`: "", `{"n":9.0,"l":["a"]}`: "", `{"n":9.5}`: "type", `{"n":10}`: "maximum", `{"l":[]}`: "required",
		`{"n":1,"l":["a",2]}`: "type", `[]`: "type",
	} {
		problem, ok := p.Check([]byte(raw))
		if ok != (want == "") || !strings.Contains(problem, want) {
			t.Errorf("%s: %q, want %q", raw, problem, want)
		}
	}
}
