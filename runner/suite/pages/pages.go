package pages

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

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

// Agent is one line about an agent: its rate, interval and verdicts. With a single task, the interval is that of the
// task's attempts.
func Agent(r *schema.SuiteResults, a *schema.SuiteAgent) string {
	text := printable(a.Agent) + ": no attempt counts yet"
	if a.Rate != nil {
		text = fmt.Sprintf("%s: %s", printable(a.Agent), percent(a.Rate))
		in, of := a.CI95, a.Tasks
		for i := range r.Cells {
			if c := &r.Cells[i]; in == nil && c.Agent == a.Agent && c.CI95 != nil {
				in = c.CI95
			}
		}
		text += fmt.Sprintf(" (95 %%: %s) of %s", interval(in), schema.Count(of, "task", "tasks"))
	}
	return text + ": " + strings.Join(counts(&a.SuiteRates), ", ")
}

// counts lists how many attempts have each verdict, without those that none has.
func counts(r *schema.SuiteRates) (all []string) {
	for _, c := range []struct {
		n    int
		what string
	}{{r.Passed, "passed"}, {r.Failed, "failed"}, {r.Inconclusive, "inconclusive"},
		{r.Infrastructure, "infrastructure"}, {r.Pending, "pending"}, {r.Suspicious, "suspicious"}} {
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

// printable makes a text one line without control characters.
func printable(s string) string { return schema.OneLine(s) }

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

// Markdown writes the results in Markdown: the agents' rates, the attempts that did not pass, and suspicions.
func Markdown(w io.Writer, r *schema.SuiteResults) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", escaped(r.Suite))
	b.WriteString("| agent | tasks | rate | 95 % | without suspicions | passed | failed | inconclusive | " +
		"infrastructure | pending | suspicious | time | tokens | cost |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for i := range r.Agents {
		a := &r.Agents[i]
		used := spent(a.SuiteRates)
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %d | %d | %d | %d | %d | %d | %s | %s | %s |\n", escaped(a.Agent),
			a.Tasks, percent(a.Rate), interval(a.CI95), percent(a.RateWithoutSuspicions), a.Passed, a.Failed,
			a.Inconclusive, a.Infrastructure, a.Pending, a.Suspicious, used[0], used[1], used[2])
	}
	b.WriteString("\n| task | agent | rate | 95 % | passed | attempts |\n|---|---|---:|---:|---:|---:|\n")
	for i := range r.Cells {
		c := &r.Cells[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d |\n", escaped(c.Task), escaped(c.Agent), percent(c.Rate),
			interval(c.CI95), c.Passed, c.Attempts)
	}
	list := func(title string, line func(a schema.SuiteAttempt) []string) {
		begun := false
		for i := range r.Attempts {
			for _, text := range line(r.Attempts[i]) {
				if !begun {
					fmt.Fprintf(&b, "\n### %s\n\n", title)
					begun = true
				}
				fmt.Fprintf(&b, "- %s\n", text)
			}
		}
	}
	list("Not passed", func(a schema.SuiteAttempt) []string {
		if verdict(a) == schema.SuitePassed {
			return nil
		}
		return []string{fmt.Sprintf("**%s** %s: %s", escaped(a.ID), verdict(a), escaped(a.Reason))}
	})
	list("Suspicions", func(a schema.SuiteAttempt) (lines []string) {
		for _, f := range a.Suspicions {
			lines = append(lines, fmt.Sprintf("**%s** %s: %s", escaped(a.ID), escaped(f.Rule), escaped(described(f))))
		}
		return lines
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

//go:embed page.html
var page string

// HTML writes the results as one page without scripts. link returns the URL of the report about a bundle, relative to
// the page; empty if there is none.
func HTML(w io.Writer, r *schema.SuiteResults, generator string, link func(bundle string) string) error {
	of := map[string][]schema.SuiteAttempt{} // names have no slash
	for _, a := range r.Attempts {
		of[a.Task+"/"+a.Agent] = append(of[a.Task+"/"+a.Agent], a)
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"percent": percent, "interval": interval, "verdict": verdict, "described": described, "printable": printable,
		"spent": spent,
		"report": func(bundle string) string {
			if bundle == "" {
				return ""
			}
			return link(bundle)
		},
		"of": func(task, agent string) []schema.SuiteAttempt { return of[task+"/"+agent] },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, struct {
		*schema.SuiteResults
		Generator string
	}{r, generator})
}

// ReportOf is the path of the report about a bundle: report.html beside it.
func ReportOf(bundle string) string { return path.Join(path.Dir(bundle), "report.html") }
