package gateway

import (
	"testing"
	"time"
)

func TestOutputsAreClassified(t *testing.T) {
	const none = -999
	for output, want := range map[string]int64{
		`{"exit_code":0}`: 0, `{"exit_code":3,"timed_out":false}`: 3, `{"exit_code":-1}`: -1, `{"exit_code":3.0}`: 3,
		`{"exit_code":2e1}`: 20,
		`{"exit_code":1.5}`: none, `{"exit_code":"0"}`: none, `{"exit_code":null}`: none, `{"exit_code":1e300}`: none,
		`{"exit_code":18446744073709551615}`: none, `{}`: none, `"text"`: none, `[0]`: none, `null`: none,
	} {
		switch got := cliOutcome([]byte(output)); {
		case got == nil:
			if want != none {
				t.Errorf("%s: no outcome, want exited %d", output, want)
			}
		case got.Kind != "exited" || got.Code == nil || *got.Code != want:
			t.Errorf("%s: %+v, want exited %d", output, got, want)
		}
	}
	if got := cliOutcome([]byte(`{"exit_code":0,"timed_out":true}`)); got == nil || got.Kind != "timeout" ||
		got.Code != nil {
		t.Errorf("timed out: %+v", got)
	}
	for output, want := range map[string]string{
		`{"passed":true}`: "pass", `{"passed":false}`: "fail", `{"passed":"true"}`: "not_run", `{}`: "not_run",
		`[true]`: "not_run",
	} {
		if got := checkVerdict([]byte(output)); got != want {
			t.Errorf("%s: %s, want %s", output, got, want)
		}
	}
}

func TestMembersAreFoundHoweverTheirNamesAreWritten(t *testing.T) {
	for output, want := range map[string]bool{
		`{"isError":true}`: true, `{"a":"isError","is\u0045rror":true}`: true, `{ "isError" : false }`: false,
		`{"isError":"true"}`:     false,
		`{"a":{"isError":true}}`: false, `{"content":"a\nb"}`: false, `{}`: false, `["isError",true]`: false,
		`null`: false,
	} {
		if got := saysFailed([]byte(output)); got != want {
			t.Errorf("%s: failed is %v, want %v", output, got, want)
		}
	}
	for object, want := range map[string]string{
		`{"cursor":"c2"}`: "c2", `{"c\u0075rsor":"\"c2"}`: `"c2`, `{"cursor":2}`: "", `{"path":"cursor"}`: "", `{}`: "",
		`"cursor"`: "",
	} {
		switch got := textMember([]byte(object), "cursor"); {
		case got == nil && want != "", got != nil && *got != want:
			t.Errorf("%s: cursor is not %q", object, want)
		}
	}
}

func TestTimestampsHaveThreeDigitsOfASecond(t *testing.T) {
	for _, ns := range []int{0, 999_999, 1_000_000, 7_000_000, 70_000_000, 999_999_999} {
		at := time.Date(2026, 2, 3, 4, 5, 6, ns, time.FixedZone("", 3600))
		if got, want := timestamp(at), at.UTC().Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
