package pages

import (
	"strings"
	"testing"

	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/schema"
)

// hostile is a text that an agent could have written.
const hostile = "a|b <script>alert(1)</script> [x](javascript:y) \x1b[31m`c`\n# d\u202e"

func results() *schema.SuiteResults {
	return &schema.SuiteResults{Suite: hostile, Flaky: []string{hostile},
		Agents: []schema.SuiteAgent{{Agent: hostile, Tasks: 1}},
		Cells:  []schema.SuiteCell{{Task: hostile, Agent: hostile}},
		Hosts:  []schema.SuiteHost{{Worker: hostile}},
		Attempts: []schema.SuiteAttempt{{ID: hostile, Task: hostile, Agent: hostile, Verdict: new(schema.SuiteFailed),
			Reason: hostile, Bundle: "attempts/x/run.tar.gz", Suspicions: []schema.Finding{{Rule: "reads_hidden",
				Text: hostile, Program: hostile, ToolCallID: hostile}}}}}
}

// TestNothingGetsIntoAPageUnescaped makes each page from texts that an agent could have written.
func TestNothingGetsIntoAPageUnescaped(t *testing.T) {
	var html, markdown, compared strings.Builder
	if err := HTML(&html, results(), "test", ReportOf); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&markdown, results()); err != nil {
		t.Fatal(err)
	}
	if err := Comparison(&compared, []*figures.Pair{{AgentA: hostile, AgentB: hostile, OnlyA: []string{hostile},
		Changed: []figures.ChangedTask{{Task: hostile, Keys: []string{hostile}}}}}); err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"HTML": html.String(), "Markdown": markdown.String(),
		"comparison": compared.String()} {
		if strings.ContainsAny(page, "\x1b\u202e") {
			t.Errorf("%s has control characters", name)
		}
		if name != "comparison" && strings.Contains(page, "<script>") {
			t.Errorf("%s has a script:\n%s", name, page)
		}
	}
	if !strings.Contains(html.String(), `href="attempts/x/report.html"`) {
		t.Error("the page does not link the report")
	}
	for line := range strings.Lines(markdown.String()) {
		if strings.HasPrefix(line, "# d") || strings.Contains(line, "[x](") {
			t.Errorf("Markdown has a line of the agent's: %s", line)
		}
	}
}

// TestMarkdownIsBounded writes more than fits into a job summary, and expects that each part says what it leaves out.
func TestMarkdownIsBounded(t *testing.T) {
	r := large(600, "one", "another")
	for i := range r.Attempts {
		r.Attempts[i].Suspicions = []schema.Finding{{Rule: "reads_hidden", Text: strings.Repeat("x", 1000)}}
	}
	var b strings.Builder
	if err := Markdown(&b, r); err != nil {
		t.Fatal(err)
	}
	if b.Len() > MaxMarkdown {
		t.Errorf("it has %d bytes, want at most %d", b.Len(), MaxMarkdown)
	}
	if n := strings.Count(b.String(), "more, for which there is no room"); n != 2 {
		t.Errorf("%d parts say that they leave something out, want the suspicions and the attempts", n)
	}
}
