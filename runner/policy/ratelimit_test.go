package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema/policyfile"
)

func TestRateLimitSlides(t *testing.T) {
	s := setOf(t, policyfile.Rule{Name: "rate", Rule: policyfile.RateLimitTool, Target: "t",
		Value: policyfile.Values{"2/10s"}})
	at := func(sec float64, dry bool) []Violation {
		return s.Check(&Call{Tool: "t", Now: time.Duration(sec * float64(time.Second)), DryRun: dry})
	}
	for i, step := range []struct {
		sec  float64
		dry  bool
		wait time.Duration // 0: allowed
	}{
		{0, false, 0}, {1, true, 0}, {2, true, 0}, {6, false, 0},
		{7, false, 3 * time.Second}, {9.5, false, 500 * time.Millisecond},
		{10, false, 0}, {10.1, false, 5900 * time.Millisecond}, {16, false, 0}, {17, false, 3 * time.Second},
	} {
		got := at(step.sec, step.dry)
		if step.wait == 0 && len(got) > 0 {
			t.Errorf("step %d at %gs: %+v, want allowed", i, step.sec, got)
		}
		if step.wait > 0 && (len(got) != 1 || got[0].RetryAfter != step.wait) {
			t.Errorf("step %d at %gs: %+v, want a wait of %v", i, step.sec, got, step.wait)
		}
	}
}

func TestADeniedCallDoesNotCountAgainstARateLimit(t *testing.T) {
	s := setOf(t,
		policyfile.Rule{Name: "rate", Rule: policyfile.RateLimitTool, Target: "t", Value: policyfile.Values{"1"}},
		policyfile.Rule{Name: "never", Rule: policyfile.RateLimitTool, Target: "t", Value: policyfile.Values{"1"}},
		policyfile.Rule{Name: "word", Rule: policyfile.DenyKeyword, Value: policyfile.Values{"x"}},
	)
	bad, good := Call{Tool: "t", Params: []byte(`{"a":"x"}`)}, Call{Tool: "t"}
	for range 3 {
		if got := violated(s, bad); !cmp.Equal(got, []string{"word"}) {
			t.Fatalf("violations %q", got)
		}
	}
	if got := violated(s, good); got != nil {
		t.Fatalf("violations %q, want none", got)
	}
	if got := violated(s, good); !cmp.Equal(got, []string{"rate", "never"}) {
		t.Fatalf("violations %q", got)
	}
}
