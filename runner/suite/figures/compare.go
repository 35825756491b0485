package figures

import (
	"maps"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// Outcomes of a comparison.
const (
	Better    = "better"    // the whole interval of the difference is above zero
	Worse     = "worse"     // the whole interval is below zero
	Undecided = "undecided" // the interval contains zero, or there are fewer than two tasks
)

// Pair compares an agent of one suite, A, with an agent of another, B, over the tasks that both suites define alike.
type Pair struct {
	AgentA string `json:"agent_a"`
	AgentB string `json:"agent_b"`
	// Tasks are those that both suites define alike and that both agents have a rate for, by name.
	Tasks []TaskPair `json:"tasks"`
	// Changed are tasks of the same name with different definitions. They are not compared.
	Changed []ChangedTask `json:"changed"`
	// OnlyA and OnlyB are tasks of only one suite. Unrated are tasks of both that an agent has no rate for.
	OnlyA   []string `json:"only_a"`
	OnlyB   []string `json:"only_b"`
	Unrated []string `json:"unrated"`
	// RateA and RateB are means over Tasks, and Difference is RateB minus RateA; null without tasks.
	RateA      *float64 `json:"rate_a"`
	RateB      *float64 `json:"rate_b"`
	Difference *float64 `json:"difference"`
	// CI95 is the interval of the difference, by resampling tasks; null with fewer than two.
	CI95    *[2]float64 `json:"ci95"`
	Outcome string      `json:"outcome"`
	// SpentA and SpentB are what one attempt takes, as means over Tasks.
	SpentA Spent `json:"spent_a"`
	SpentB Spent `json:"spent_b"`
	// AgentChanged are the fields of the agents' definitions that differ.
	AgentChanged []string `json:"agent_changed"`
}

// Spent is what an attempt takes on average; null unless it is known for every task.
type Spent struct {
	Seconds *float64 `json:"seconds"`
	Tokens  *float64 `json:"tokens"`
	Cost    *float64 `json:"cost"`
}

// TaskPair is the rates of both agents at a task.
type TaskPair struct {
	Task       string  `json:"task"`
	RateA      float64 `json:"rate_a"`
	RateB      float64 `json:"rate_b"`
	Difference float64 `json:"difference"`
}

// ChangedTask is a task with different definitions. Keys are the keys of the suite file that differ.
type ChangedTask struct {
	Task string   `json:"task"`
	Keys []string `json:"keys"`
}

// Compare compares the agent agentA in the results a with the agent agentB in the results b.
func Compare(a, b *schema.SuiteResults, agentA, agentB string) *Pair {
	p := &Pair{AgentA: agentA, AgentB: agentB, Tasks: []TaskPair{}, Changed: []ChangedTask{}, OnlyA: []string{},
		OnlyB: []string{}, Unrated: []string{}, Outcome: Undecided,
		AgentChanged: slices.DeleteFunc(changedKeys(a, b, "agent "+agentA, "agent "+agentB),
			func(key string) bool { return key == "name" })}
	inA, inB := cells(a, agentA), cells(b, agentB)
	var comparedA, comparedB []*schema.SuiteCell
	for _, task := range slices.Sorted(maps.Keys(inA)) {
		other, both := inB[task]
		keys := changedKeys(a, b, "task "+task, "task "+task)
		switch {
		case !both:
			p.OnlyA = append(p.OnlyA, task)
		case len(keys) > 0:
			p.Changed = append(p.Changed, ChangedTask{task, keys})
		case inA[task].Rate == nil || other.Rate == nil:
			p.Unrated = append(p.Unrated, task)
		default:
			rateA, rateB := *inA[task].Rate, *other.Rate
			p.Tasks = append(p.Tasks, TaskPair{task, rateA, rateB, rateB - rateA})
			comparedA, comparedB = append(comparedA, inA[task]), append(comparedB, other)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(inB)) {
		if _, both := inA[task]; !both {
			p.OnlyB = append(p.OnlyB, task)
		}
	}
	p.decide()
	p.SpentA, p.SpentB = spent(comparedA), spent(comparedB)
	return p
}

// spent is the mean over cells of what one attempt takes.
func spent(cells []*schema.SuiteCell) Spent {
	mean := func(sum func(*schema.SuiteCell) *float64) *float64 {
		var each []float64
		for _, c := range cells {
			if s := sum(c); s != nil {
				each = append(each, *s/float64(c.Passed+c.Failed+c.Inconclusive))
			}
		}
		if len(each) < len(cells) || len(cells) == 0 {
			return nil
		}
		return new(Mean(each))
	}
	return Spent{mean(func(c *schema.SuiteCell) *float64 { return c.Seconds }),
		mean(func(c *schema.SuiteCell) *float64 {
			if c.Tokens == nil {
				return nil
			}
			return new(float64(*c.Tokens))
		}), mean(func(c *schema.SuiteCell) *float64 { return c.Cost })}
}

// decide sets the means, the interval and the outcome from p.Tasks.
func (p *Pair) decide() {
	var first, second, differences []float64
	for _, t := range p.Tasks {
		first, second = append(first, t.RateA), append(second, t.RateB)
		differences = append(differences, t.Difference)
	}
	if len(p.Tasks) == 0 {
		return
	}
	p.RateA, p.RateB, p.Difference = new(Mean(first)), new(Mean(second)), new(Mean(differences))
	if len(p.Tasks) < 2 {
		return
	}
	in := MeanInterval(differences)
	p.CI95 = &[2]float64{in.Low, in.High}
	switch {
	case in.Low > 0:
		p.Outcome = Better
	case in.High < 0:
		p.Outcome = Worse
	}
}

// cells are an agent's cells, by task.
func cells(r *schema.SuiteResults, agent string) map[string]*schema.SuiteCell {
	all := map[string]*schema.SuiteCell{}
	for i := range r.Cells {
		if r.Cells[i].Agent == agent {
			all[r.Cells[i].Task] = &r.Cells[i]
		}
	}
	return all
}

// changedKeys returns the keys that differ between a definition in the results a and one in b. Older results have no
// definitions. Then it returns the one key "definition", as nothing shows that they are the same.
func changedKeys(a, b *schema.SuiteResults, inA, inB string) []string {
	first, second := a.Definitions[inA], b.Definitions[inB]
	if len(first)+len(second) == 0 {
		return []string{"definition"}
	}
	return append([]string{}, ChangedKeys(first, second)...)
}

// ChangedKeys returns the keys whose values differ, sorted.
func ChangedKeys(a, b map[string]string) []string {
	changed := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for key := range m {
			if a[key] != b[key] {
				changed[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(changed))
}
