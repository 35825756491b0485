package figures

import (
	"maps"
	"math"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// Outcomes of a comparison.
const (
	Better    = "better"    // the whole interval of the difference at these tasks is above zero
	Worse     = "worse"     // the whole interval is below zero
	Undecided = "undecided" // the interval contains zero, or there is no task to compare
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
	Comparison
	// WithoutSuspicions counts attempts that passed with a suspicion as not passed. WithInfrastructure counts
	// infrastructure failures as not passed.
	WithoutSuspicions  Comparison `json:"without_suspicions"`
	WithInfrastructure Comparison `json:"with_infrastructure"`
	// CountsA and CountsB are the attempts at Tasks.
	CountsA Counts `json:"counts_a"`
	CountsB Counts `json:"counts_b"`
	// SpentA and SpentB are what one attempt takes, as means over Tasks.
	SpentA Spent `json:"spent_a"`
	SpentB Spent `json:"spent_b"`
	// AgentChanged are the fields of the agents' definitions that differ.
	AgentChanged []string `json:"agent_changed"`
}

// Counts are how many attempts there were at the compared tasks.
type Counts struct {
	Counted        int `json:"counted"` // in the rate
	Suspicious     int `json:"suspicious"`
	Infrastructure int `json:"infrastructure"`
}

// Comparison compares the rates of two agents at the same tasks. All fields except Outcome are null without tasks.
type Comparison struct {
	// RateA and RateB are means over the tasks, and Difference is RateB minus RateA.
	RateA      *float64 `json:"rate_a"`
	RateB      *float64 `json:"rate_b"`
	Difference *float64 `json:"difference"`
	// TheseTasksAgain and TasksLikeThese are intervals of the difference; see the package. The second one is null with
	// fewer than [MinTasks] tasks.
	TheseTasksAgain *[2]float64 `json:"these_tasks_again"`
	TasksLikeThese  *[2]float64 `json:"tasks_like_these"`
	// SmallestFound is the smallest difference at these tasks that four of five comparisons with as many attempts would
	// call better or worse; null if none is large enough. Its agents are as good as both together, except that the
	// second one loses the same share of what it has at each task (below 50 %, of what is missing).
	SmallestFound *float64 `json:"smallest_found"`
	Outcome       string   `json:"outcome"` // by TheseTasksAgain
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
		OnlyB: []string{}, Unrated: []string{},
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
		case Counted(inA[task]).N == 0 || Counted(other).N == 0:
			p.Unrated = append(p.Unrated, task)
		default:
			rateA, rateB := Counted(inA[task]).rate(), Counted(other).rate()
			p.Tasks = append(p.Tasks, TaskPair{task, rateA, rateB, rateB - rateA})
			comparedA, comparedB = append(comparedA, inA[task]), append(comparedB, other)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(inB)) {
		if _, both := inA[task]; !both {
			p.OnlyB = append(p.OnlyB, task)
		}
	}
	compared := func(of func(*schema.SuiteCell) Cell) Comparison {
		a, b := each(comparedA, of), each(comparedB, of)
		c := compareCells(a, b)
		c.SmallestFound = smallestFound(a, b)
		return c
	}
	p.Comparison, p.WithoutSuspicions = compared(Counted), compared(WithoutSuspicions)
	p.WithInfrastructure = compared(WithInfrastructure)
	p.CountsA, p.CountsB = counts(comparedA), counts(comparedB)
	p.SpentA, p.SpentB = spent(comparedA), spent(comparedB)
	return p
}

// Counted is what counts of an agent's attempts at a task for the rate.
func Counted(c *schema.SuiteCell) Cell { return Cell{c.Passed, c.Passed + c.Failed + c.Inconclusive} }

// WithoutSuspicions counts attempts that passed with a suspicion, or with an unusual call, as not passed.
func WithoutSuspicions(c *schema.SuiteCell) Cell {
	return Cell{c.Passed - c.PassedSuspicious - c.PassedUnusual, Counted(c).N}
}

// WithInfrastructure counts infrastructure failures as not passed.
func WithInfrastructure(c *schema.SuiteCell) Cell {
	return Cell{c.Passed, Counted(c).N + c.Infrastructure}
}

// each is what counts of each cell.
func each(cells []*schema.SuiteCell, of func(*schema.SuiteCell) Cell) (all []Cell) {
	for _, c := range cells {
		all = append(all, of(c))
	}
	return all
}

func counts(cells []*schema.SuiteCell) (sum Counts) {
	for _, c := range cells {
		sum.Counted += Counted(c).N
		sum.Suspicious += c.Suspicious
		sum.Infrastructure += c.Infrastructure
	}
	return sum
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
		return new(average(each))
	}
	return Spent{mean(func(c *schema.SuiteCell) *float64 { return c.Seconds }),
		mean(func(c *schema.SuiteCell) *float64 {
			if c.Tokens == nil {
				return nil
			}
			return new(float64(*c.Tokens))
		}), mean(func(c *schema.SuiteCell) *float64 { return c.Cost })}
}

// compareCells compares what two agents did at the same tasks, given in the same order. It leaves SmallestFound out.
func compareCells(a, b []Cell) Comparison {
	d := Comparison{RateA: Rate(a), RateB: Rate(b), Outcome: Undecided}
	if len(a) == 0 {
		return d
	}
	d.Difference = new(*d.RateB - *d.RateA)
	tasks := float64(len(a))
	variance, unit := 0.0, 0.0 // variance of the sum of differences; what one attempt adds to their mean, at most
	differences := []float64{-1, 1}
	for i := range a {
		nA, nB := float64(a[i].N), float64(b[i].N)
		passed, n := float64(a[i].Passed+b[i].Passed), nA+nB
		variance += passed * (n - passed) / (nA * nB * (n - 1)) // of the hypergeometric distribution
		unit = max(unit, oneAttempt(a[i], b[i])/tasks)
		differences = append(differences, b[i].rate()-a[i].rate())
	}
	scale := 1 + 2*unit
	mid, deviation := *d.Difference/scale, math.Sqrt(variance/tasks/tasks+2*unit*unit)/scale
	in := Interval{max(-1, mid-z975*deviation), min(1, mid+z975*deviation)}
	d.TheseTasksAgain = &[2]float64{in.Low, in.High}
	switch {
	case in.Low > 0:
		d.Outcome = Better
	case in.High < 0:
		d.Outcome = Worse
	}
	if len(a) >= MinTasks {
		in := ofMean(differences, len(a)-1)
		d.TasksLikeThese = &[2]float64{max(-1, in.Low), min(1, in.High)}
	}
	return d
}

// oneAttempt is what one attempt of each agent adds to the difference of their rates at a task.
func oneAttempt(a, b Cell) float64 { return 1 / math.Sqrt(float64(a.N*b.N)) }

// smallestFound is Comparison.SmallestFound, to half a point. The variances are unbiased estimates: for a rate p, of p
// and of p(1-p).
func smallestFound(a, b []Cell) *float64 {
	tasks, mean, unit := float64(len(a)), 0.0, 0.0
	rates, products := make([]float64, len(a)), make([]float64, len(a))
	for i := range a {
		passed, n := float64(a[i].Passed+b[i].Passed), float64(a[i].N+b[i].N)
		rates[i], products[i] = passed/n, passed*(n-passed)/n/(n-1)
		mean += rates[i] / tasks
		unit = max(unit, oneAttempt(a[i], b[i])/tasks)
	}
	if mean < 0.5 {
		mean = 1 - mean
		for i := range rates {
			rates[i] = 1 - rates[i]
		}
	}
	const step = 0.005
	for smallest := step; smallest <= mean; smallest += step {
		left := 1 - smallest/mean // the share that the second agent keeps
		truth, variance := 0.0, 0.0
		for i, p := range rates {
			nA, nB := float64(a[i].N), float64(b[i].N)
			first, second := products[i], left*left*products[i]+left*(1-left)*p // variances of single attempts
			truth += first/nA + second/nB
			passed, n := nA+left*nB, nA+nB
			variance += (n*passed*p - nA*first - nB*second - passed*passed*(p-products[i])) / (nA * nB * (n - 1))
		}
		if smallest >= z975*math.Sqrt(variance/tasks/tasks+2*unit*unit)+z80*math.Sqrt(truth)/tasks {
			return &smallest
		}
	}
	return nil
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
