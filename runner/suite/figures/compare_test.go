package figures

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// These are the hours of sleep that ten patients gained by two drugs, from Student, The probable error of a mean,
// Biometrika 6 (1908). The difference is 1.58, and the interval by the t distribution is 0.700 to 2.460. The interval
// by bootstrap is narrower.
func TestDifferenceAsPublished(t *testing.T) {
	first := []float64{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0}
	second := []float64{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4}
	p := &Pair{Outcome: Undecided}
	for i := range first {
		p.Tasks = append(p.Tasks, TaskPair{RateA: first[i], RateB: second[i], Difference: second[i] - first[i]})
	}
	p.decide()
	if math.Abs(*p.RateA-0.75) > 1e-9 || math.Abs(*p.RateB-2.33) > 1e-9 || math.Abs(*p.Difference-1.58) > 1e-9 {
		t.Errorf("means %v and %v, difference %v", *p.RateA, *p.RateB, *p.Difference)
	}
	if low, high := p.CI95[0], p.CI95[1]; low < 0.700 || low > 1.1 || high > 2.460 || high < 2.0 {
		t.Errorf("the interval is %v to %v", low, high)
	}
	if p.Outcome != Better {
		t.Errorf("the outcome is %s", p.Outcome)
	}
}

// results has cells of one agent, and the definitions of its tasks.
func results(agent string, rates map[string]*float64, definitions map[string]string) *schema.SuiteResults {
	r := &schema.SuiteResults{Definitions: map[string]map[string]string{"agent " +
		agent: {"name": agent, "command": "x"}}}
	for task, rate := range rates {
		r.Cells = append(r.Cells, schema.SuiteCell{Task: task, Agent: agent, SuiteRates: schema.SuiteRates{Rate: rate}})
		r.Definitions["task "+task] = map[string]string{"name": task, "prompt": definitions[task]}
	}
	return r
}

// TestOnlyEqualTasksAreCompared expects the other tasks to be named with the reason.
func TestOnlyEqualTasksAreCompared(t *testing.T) {
	a := results("x", map[string]*float64{"one": new(1.0), "two": new(1.0), "three": new(0.5), "old": new(1.0),
		"none": nil}, map[string]string{"three": "before"})
	b := results("y", map[string]*float64{"one": new(0.5), "two": new(0.75), "three": new(1.0), "new": new(1.0),
		"none": new(1.0)}, map[string]string{"three": "after"})
	b.Definitions["agent y"]["command"] = "z"
	got := Compare(a, b, "x", "y")
	want := &Pair{AgentA: "x", AgentB: "y", Tasks: []TaskPair{{"one", 1, 0.5, -0.5}, {"two", 1, 0.75, -0.25}},
		Changed: []ChangedTask{{"three", []string{"prompt"}}}, OnlyA: []string{"old"}, OnlyB: []string{"new"},
		Unrated: []string{"none"}, RateA: new(1.0), RateB: new(0.625), Difference: new(-0.375),
		CI95: &[2]float64{-0.5, -0.25}, Outcome: Worse, AgentChanged: []string{"command"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.Definitions = nil
	if got := Compare(a, b, "x", "y"); len(got.Tasks) != 0 || got.Outcome != Undecided || got.Difference != nil {
		t.Errorf("tasks that are not known to be equal were compared: %+v", got)
	}
	a.Definitions = nil
	if got := Compare(a, b, "x", "y"); len(got.Tasks) != 0 || len(got.Changed) != 4 {
		t.Errorf("tasks that are not known to be equal were compared: %+v", got)
	}
}

// TestOneTaskDecidesNothing expects no interval for a single task.
func TestOneTaskDecidesNothing(t *testing.T) {
	a := results("x", map[string]*float64{"one": new(1.0)}, nil)
	b := results("x", map[string]*float64{"one": new(0.0)}, nil)
	if got := Compare(a, b, "x", "x"); got.Outcome != Undecided || got.CI95 != nil || *got.Difference != -1 {
		t.Errorf("%+v", got)
	}
}
