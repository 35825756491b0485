package pages

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"iter"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

// percent formats a rate; a dash if it is unknown.
func percent(rate *float64) string {
	if rate == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**rate)
}

// interval formats the interval of a rate in percent; empty if there is none.
func interval(in *[2]float64) string {
	if in == nil {
		return ""
	}
	return fmt.Sprintf("%.1f to %.1f", 100*in[0], 100*in[1])
}

// Agent is one line about an agent: its rate, intervals and verdicts.
func Agent(a *schema.SuiteAgent) string {
	text := schema.OneLine(a.Agent) + ": no attempt counts yet"
	if a.Rate != nil {
		text = fmt.Sprintf("%s: %s of %s (95 %%: these tasks again %s, tasks like these %s)", schema.OneLine(a.Agent),
			percent(a.Rate), counted(a), interval(a.TheseTasksAgain), like(a))
	}
	return text + ": " + strings.Join(counts(&a.SuiteRates), ", ")
}

// counted says how many tasks an agent's rate is about.
func counted(a *schema.SuiteAgent) string {
	if a.Counted == a.Tasks {
		return schema.Count(a.Tasks, "task", "tasks")
	}
	return fmt.Sprintf("%d of %s", a.Counted, schema.Count(a.Tasks, "task", "tasks"))
}

// like formats the interval of an agent's rate at tasks like these.
func like(a *schema.SuiteAgent) string {
	if a.TasksLikeThese == nil {
		return "too few tasks"
	}
	return interval(a.TasksLikeThese)
}

// counts lists how many attempts have each verdict, without those that none has.
func counts(r *schema.SuiteRates) (all []string) {
	for _, c := range []struct {
		n    int
		what string
	}{{r.Passed, "passed"}, {r.Failed, "failed"}, {r.Inconclusive, "inconclusive"},
		{r.Infrastructure, "infrastructure"}, {r.Pending, "pending"}, {r.Suspicious, "suspicious"},
		{r.Closed, "closed book"}, {r.Open, "open book"}} {
		if c.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return all
}

// spent formats time, tokens and cost; a dash for what is unknown.
func spent(r schema.SuiteRates) (of [3]string) {
	of = [3]string{"–", "–", "–"}
	if r.Seconds != nil {
		took := time.Duration(*r.Seconds * float64(time.Second))
		of[0] = took.Round(max(time.Millisecond, took/1000).Truncate(time.Millisecond)).String()
	}
	if r.Tokens != nil {
		of[1] = fmt.Sprint(*r.Tokens)
	}
	if r.Cost != nil {
		of[2] = strconv.FormatFloat(*r.Cost, 'f', 4, 64)
	}
	return of
}

// verdict is the attempt's verdict; "pending" while there is none.
func verdict(a schema.SuiteAttempt) string {
	if a.Verdict == nil {
		return "pending"
	}
	return *a.Verdict
}

// said is an attempt's verdict, with the number of its suspicions.
func said(a schema.SuiteAttempt) string {
	if len(a.Suspicions) == 0 {
		return verdict(a)
	}
	return verdict(a) + " with " + schema.Count(len(a.Suspicions), "suspicion", "suspicions")
}

// maxReason limits a reason or a suspicion on a page, in bytes.
const maxReason = 400

// short shortens a text to maxReason.
func short(s string) string {
	if len(s) <= maxReason {
		return s
	}
	end := maxReason
	for end > maxReason-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + " …"
}

// escaped escapes a text for Markdown, and makes it one line.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range schema.OneLine(s) {
		if strings.ContainsRune("\\`*_{}[]()<>#+-!|~&@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// MaxMarkdown limits the results in Markdown, in bytes. GitHub refuses a larger job summary.
const MaxMarkdown = 1 << 20

// section writes lines while less than most bytes of b are used, and then says how many others there are.
func section(b *strings.Builder, most int, lines iter.Seq[string]) {
	const sentence = 100
	left := 0
	for line := range lines {
		if left > 0 || b.Len()+len(line) > most-sentence {
			left++
			continue
		}
		b.WriteString(line)
	}
	if left > 0 {
		fmt.Fprintf(b, "\n… and %d more, for which there is no room.\n", left)
	}
}

// Markdown writes the results in Markdown: the agents' rates, suspicions, and the attempts that did not pass. It writes
// at most [MaxMarkdown] bytes.
func Markdown(w io.Writer, r *schema.SuiteResults) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", escaped(r.Suite))
	b.WriteString("| agent | tasks | rate | these tasks again, 95 % | tasks like these, 95 % | without suspicions | " +
		"closed book | with infrastructure | passed | failed | inconclusive | infrastructure | pending | " +
		"suspicious | time | tokens | cost |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	section(&b, MaxMarkdown/4, func(yield func(string) bool) {
		for i := range r.Agents {
			a := &r.Agents[i]
			used := spent(a.SuiteRates)
			yield(fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s |"+
				" %d | %d | %d | %d | %d | %d | %s | %s | %s |\n",
				escaped(a.Agent), counted(a), percent(a.Rate), interval(a.TheseTasksAgain), like(a),
				percent(a.RateWithoutSuspicions), percent(a.RateClosed), percent(a.RateWithInfrastructure), a.Passed,
				a.Failed, a.Inconclusive, a.Infrastructure, a.Pending, a.Suspicious, used[0], used[1], used[2]))
		}
	})
	b.WriteString("\n| task | agent | rate | this task again, 95 % | passed | attempts | infrastructure | " +
		"suspicious |\n" +
		"|---|---|---:|---:|---:|---:|---:|---:|\n")
	section(&b, MaxMarkdown/2, func(yield func(string) bool) {
		for i := range r.Cells {
			c := &r.Cells[i]
			yield(fmt.Sprintf("| %s | %s | %s | %s | %d | %d | %d | %d |\n", escaped(c.Task), escaped(c.Agent),
				percent(c.Rate), interval(c.TheseTasksAgain), c.Passed, c.Attempts, c.Infrastructure, c.Suspicious))
		}
	})
	list := func(title string, most int, line func(a schema.SuiteAttempt) []string) {
		begun := false
		section(&b, most, func(yield func(string) bool) {
			for i := range r.Attempts {
				for _, text := range line(r.Attempts[i]) {
					if !begun {
						fmt.Fprintf(&b, "\n### %s\n\n", title)
						begun = true
					}
					yield("- " + text + "\n")
				}
			}
		})
	}
	list("Suspicions", MaxMarkdown*3/4, func(a schema.SuiteAttempt) (lines []string) {
		for _, f := range a.Suspicions {
			lines = append(lines, fmt.Sprintf("⚠ **%s** %s, %s: %s", escaped(a.ID), verdict(a), escaped(f.Rule),
				escaped(short(described(f)))))
		}
		for _, call := range a.Unusual {
			lines = append(lines, fmt.Sprintf("⚠ **%s** %s, a rule could not be decided: %s", escaped(a.ID), verdict(a),
				escaped(short(call))))
		}
		return lines
	})
	list("Not passed", MaxMarkdown, func(a schema.SuiteAttempt) []string {
		if verdict(a) == schema.SuitePassed {
			return nil
		}
		return []string{fmt.Sprintf("**%s** %s: %s", escaped(a.ID), said(a), escaped(short(a.Reason)))}
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// described is a finding's text with the program and the tool call that it is about.
func described(f schema.Finding) string {
	text := f.Text
	if f.Program != "" {
		text += " by " + f.Program
	}
	if f.ToolCallID != "" {
		text += " in call " + f.ToolCallID
	}
	return text
}

// plot is a rate of an agent as the page draws it.
type plot struct {
	What, Shape   string // what the rate counts, and the symbol of its dot
	Rate          *float64
	These, Like   *figures.Interval // these tasks again, and tasks like these; null if they are not known
	Tasks, Counts int               // tasks and attempts that it counts
}

// plots are the rates of an agent: as it is, without suspicions, and with infrastructure.
func plots(r *schema.SuiteResults, agent string) (all []plot) {
	for _, p := range []struct {
		what, shape string
		of          func(*schema.SuiteCell) figures.Cell
	}{{"rate", "dot", figures.Counted}, {"if suspicious attempts did not pass", "diamond", figures.WithoutSuspicions},
		{"if infrastructure did not pass", "triangle", figures.WithInfrastructure}} {
		drawn := plot{What: p.what, Shape: p.shape}
		var cells []figures.Cell
		for i := range r.Cells {
			if c := p.of(&r.Cells[i]); r.Cells[i].Agent == agent && c.N > 0 {
				cells = append(cells, c)
				drawn.Counts += c.N
			}
		}
		drawn.Tasks = len(cells)
		drawn.Rate, drawn.These, drawn.Like = figures.Rate(cells), figures.TheseTasksAgain(cells),
			figures.TasksLikeThese(cells)
		all = append(all, drawn)
	}
	return all
}

// maxListed limits the attempts that the page lists with their reasons, and maxFindings the suspicions of each.
const (
	maxListed   = 1000
	maxFindings = 5
)

// listed are the attempts with something to say: those with suspicions first, and then the others that did not pass.
func listed(r *schema.SuiteResults) (first []*schema.SuiteAttempt, more int) {
	var others []*schema.SuiteAttempt
	for i := range r.Attempts {
		switch a := &r.Attempts[i]; {
		case len(a.Suspicions) > 0, len(a.Unusual) > 0:
			first = append(first, a)
		case verdict(*a) != schema.SuitePassed:
			others = append(others, a)
		}
	}
	first = append(first, others...)
	if more = len(first) - maxListed; more > 0 {
		return first[:maxListed], more
	}
	return first, 0
}

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": percent, "interval": interval, "verdict": verdict, "said": said, "printable": schema.OneLine,
	"spent": spent, "counted": counted, "like": like,
	"finding": func(f schema.Finding) string { return schema.OneLine(short(described(f))) },
	"reason":  func(a *schema.SuiteAttempt) string { return schema.OneLine(short(a.Reason)) },
	"at":      func(rate float64) string { return fmt.Sprintf("%.2f%%", 100*rate) },
	"range95": func(in *figures.Interval) string { return interval(&[2]float64{in.Low, in.High}) },
}).Parse(page))

// HTML writes the results as one page without scripts. link returns the URL of the report about a bundle, relative to
// the page; empty if there is none.
func HTML(w io.Writer, r *schema.SuiteResults, generator string, link func(bundle string) string) error {
	type mark struct {
		schema.SuiteAttempt
		Report string
	}
	type row struct {
		schema.SuiteCell
		Marks []mark
	}
	of := map[string][]mark{} // names have no slash
	for _, a := range r.Attempts {
		m := mark{SuiteAttempt: a}
		if a.Bundle != "" {
			m.Report = link(a.Bundle)
		}
		of[a.Task+"/"+a.Agent] = append(of[a.Task+"/"+a.Agent], m)
	}
	data := struct {
		*schema.SuiteResults
		Generator string
		Plots     map[string][]plot
		Rows      []row
		Listed    []*schema.SuiteAttempt
		More      int
		Findings  int
	}{SuiteResults: r, Generator: generator, Plots: map[string][]plot{}, Findings: maxFindings}
	for _, a := range r.Agents {
		data.Plots[a.Agent] = plots(r, a.Agent)
	}
	for _, c := range r.Cells {
		data.Rows = append(data.Rows, row{c, of[c.Task+"/"+c.Agent]})
	}
	data.Listed, data.More = listed(r)
	b := bufio.NewWriterSize(w, 64<<10)
	if err := pageTemplate.Execute(b, data); err != nil {
		return err
	}
	return b.Flush()
}

// ReportOf is the path of the report about a bundle: report.html beside it.
func ReportOf(bundle string) string { return path.Join(path.Dir(bundle), "report.html") }
