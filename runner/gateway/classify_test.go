package gateway

import "testing"

func TestOutputsAreClassified(t *testing.T) {
	const none = -999
	for output, want := range map[string]int64{
		`{"exit_code":0}`: 0, `{"exit_code":3,"timed_out":false}`: 3, `{"exit_code":-1}`: -1, `{"exit_code":3.0}`: 3, `{"exit_code":2e1}`: 20,
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
	if got := cliOutcome([]byte(`{"exit_code":0,"timed_out":true}`)); got == nil || got.Kind != "timeout" || got.Code != nil {
		t.Errorf("timed out: %+v", got)
	}
	for output, want := range map[string]string{
		`{"passed":true}`: "pass", `{"passed":false}`: "fail", `{"passed":"true"}`: "not_run", `{}`: "not_run", `[true]`: "not_run",
	} {
		if got := checkVerdict([]byte(output)); got != want {
			t.Errorf("%s: %s, want %s", output, got, want)
		}
	}
}
