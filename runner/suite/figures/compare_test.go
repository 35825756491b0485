package figures

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// These are the hours of sleep that ten patients gained more by one drug than by another, from Student, The probable
// error of a mean, Biometrika 6 (1908). The interval of the mean by the t distribution is 0.700 to 2.460.
func TestIntervalOfAMeanAsPublished(t *testing.T) {
	in := ofMean([]float64{1.2, 2.4, 1.3, 1.3, 0, 1.0, 1.8, 0.8, 4.6, 1.4}, 9)
	if math.Abs(in.Low-0.700) > 5e-4 || math.Abs(in.High-2.460) > 5e-4 {
		t.Errorf("the interval is %.4f", in)
	}
}

// Ratings of the Prime Minister's performance at two surveys of the same 1,600 people (Agresti, Categorical Data
// Analysis, table 11.1). 150 approved only at the first one, and 86 only at the second. The interval of the difference
// by Wald is -0.060 to -0.020.
func TestPairedDifferenceAsPublished(t *testing.T) {
	var a, b []Cell
	for _, c := range []struct{ first, second, people int }{{1, 1, 794}, {1, 0, 150}, {0, 1, 86}, {0, 0, 570}} {
		for range c.people {
			a, b = append(a, Cell{c.first, 1}), append(b, Cell{c.second, 1})
		}
	}
	got := compareCells(a, b)
	for name, in := range map[string]*[2]float64{"these": got.TheseTasksAgain, "like these": got.TasksLikeThese} {
		if math.Abs(in[0]+0.060) > 2e-3 || math.Abs(in[1]+0.020) > 2e-3 {
			t.Errorf("%s: the interval is %.4f", name, *in)
		}
	}
	if math.Abs(*got.Difference+0.04) > 1e-9 || got.Outcome != Worse {
		t.Errorf("the difference is %v, %s", *got.Difference, got.Outcome)
	}
}

// results has cells of one agent, with the given numbers of passed attempts of four, and the definitions of its tasks.
// A negative number stands for four infrastructure failures.
func results(agent string, passed map[string]int, definitions map[string]string) *schema.SuiteResults {
	r := &schema.SuiteResults{Definitions: map[string]map[string]string{"agent " +
		agent: {"name": agent, "command": "x"}}}
	for task, n := range passed {
		c := schema.SuiteCell{Task: task, Agent: agent, SuiteRates: schema.SuiteRates{Attempts: 4, Infrastructure: 4}}
		if n >= 0 {
			c.Passed, c.Failed, c.Infrastructure = n, 4-n, 0
		}
		r.Cells = append(r.Cells, c)
		r.Definitions["task "+task] = map[string]string{"name": task, "prompt": definitions[task]}
	}
	return r
}

// TestOnlyEqualTasksAreCompared expects the other tasks to be named with the reason.
func TestOnlyEqualTasksAreCompared(t *testing.T) {
	a := results("x", map[string]int{"one": 4, "two": 4, "three": 2, "old": 4, "none": -1},
		map[string]string{"three": "before"})
	b := results("y", map[string]int{"one": 0, "two": 1, "three": 4, "new": 4, "none": 4},
		map[string]string{"three": "after"})
	b.Definitions["agent y"]["command"] = "z"
	got := Compare(a, b, "x", "y")
	want := &Pair{AgentA: "x", AgentB: "y", Tasks: []TaskPair{{"one", 1, 0, -1}, {"two", 1, 0.25, -0.75}},
		Changed: []ChangedTask{{"three", []string{"prompt"}}}, OnlyA: []string{"old"}, OnlyB: []string{"new"},
		Unrated: []string{"none"}, Comparison: compareCells([]Cell{{4, 4}, {4, 4}}, []Cell{{0, 4}, {1, 4}}),
		CountsA: Counts{Counted: 8}, CountsB: Counts{Counted: 8}, AgentChanged: []string{"command"}}
	want.SmallestFound = smallestFound([]Cell{{4, 4}, {4, 4}}, []Cell{{0, 4}, {1, 4}})
	want.WithoutSuspicions, want.WithInfrastructure = want.Comparison, want.Comparison
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Outcome != Worse || *got.Difference != -0.875 {
		t.Errorf("the difference is %v, %s", *got.Difference, got.Outcome)
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

// TestSuspicionsAndInfrastructureAreCompared expects an agent that is better only by them not to be better without.
func TestSuspicionsAndInfrastructureAreCompared(t *testing.T) {
	a, b := results("x", map[string]int{"one": 0, "two": 0}, nil), results("x", map[string]int{"one": 4, "two": 4}, nil)
	for i := range b.Cells {
		b.Cells[i].Suspicious, b.Cells[i].PassedSuspicious, b.Cells[i].Infrastructure = 4, 4, 12
	}
	got := Compare(a, b, "x", "x")
	if got.Outcome != Better || got.WithoutSuspicions.Outcome != Undecided ||
		*got.WithoutSuspicions.Difference != 0 || *got.WithInfrastructure.RateB != 0.25 {
		t.Errorf("%+v", got)
	}
	if want := (Counts{8, 8, 24}); got.CountsB != want {
		t.Errorf("%+v", got.CountsB)
	}
}

// TestOneAttemptDecidesNothing expects no outcome after a single attempt of each agent.
func TestOneAttemptDecidesNothing(t *testing.T) {
	got := compareCells([]Cell{{1, 1}}, []Cell{{0, 1}})
	if got.Outcome != Undecided || *got.Difference != -1 || got.TasksLikeThese != nil {
		t.Errorf("%+v", got)
	}
	if smallest := smallestFound([]Cell{{1, 1}}, []Cell{{0, 1}}); smallest != nil {
		t.Errorf("it would find %v", *smallest)
	}
}
