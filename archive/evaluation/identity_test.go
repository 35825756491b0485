package evaluation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// lastLine returns what a rule says of the last line, after the start of the run's command.
func lastLine(t *testing.T, name string, def schema.EvaluationDefinition, lines string) string {
	t.Helper()
	j, _ := judgedLines(t, def, lines)
	last := uint64(strings.Count(lines, ";") + 1)
	about := func(list []schema.Finding) bool {
		return slices.ContainsFunc(list, func(f schema.Finding) bool { return slices.Contains(f.Events, last) })
	}
	switch r := j.rules[name]; {
	case about(r.findings):
		return Fail
	case about(r.doubts):
		return Unknown
	}
	return Pass
}

// TestEachRuleFollowsFiles does what a rule forbids to a file under each of its names, by lines of each certainty.
func TestEachRuleFollowsFiles(t *testing.T) {
	const dir, base = "/o/d", "s"
	const file = dir + "/" + base
	names := map[string]struct{ lines, name string }{
		"its name":                   {"", file},
		"a rename":                   {"rename " + file + " /w/x; ", "/w/x"},
		"a rename of its directory":  {"rename " + dir + " /w/d; ", "/w/d/" + base},
		"two of them":                {"rename " + dir + " /w/d; rename /w/d /w/e; ", "/w/e/" + base},
		"an exchange":                {"exchange " + dir + " /w/d; ", "/w/d/" + base},
		"a hard link":                {"link " + file + " /w/x; ", "/w/x"},
		"a renamed hard link":        {"link " + file + " /w/d/x; rename /w/d /w/e; ", "/w/e/x"},
		"a symbolic link, renamed":   {"symlink /w/n " + dir + "; rename /w/n /w/l; ", file},
		"a bind mount":               {"bind-mount /m " + dir + "; ", "/m/" + base},
		"a removal and a return":     {"unlink " + file + "; create " + file + "; ", file},
		"a rename there and back":    {"rename " + dir + " /w/d; rename /w/d " + dir + "; ", file},
		"another file's name":        {"rename /w/a /w/b; ", "/w/b"},
		"one in its place elsewhere": {"rename " + dir + " /w/d; ", "/w/d-other/" + base},
	}
	certainties := map[string]string{"": Fail, " :tried": Unknown, " :failed": Pass, " :directory": Unknown,
		" :caller": Unknown, " :mounts": Unknown, " :claimed": Fail, " :check": Pass, " :runner": Pass, " :setup": Pass}
	for _, c := range []struct {
		rule, verb string
		def        schema.EvaluationDefinition
	}{
		{ruleHidden, "read", schema.EvaluationDefinition{Hidden: []string{dir}}},
		{ruleOthers, "read", schema.EvaluationDefinition{Others: []string{dir}}},
		{ruleOthers, "write", schema.EvaluationDefinition{Others: []string{dir}}},
		{ruleReward, "write", schema.EvaluationDefinition{Reward: []string{dir}}},
		{ruleProtected, "write", schema.EvaluationDefinition{Protected: []string{dir}}},
	} {
		for how, n := range names {
			for certainty, want := range certainties {
				// A doubtful name may be that of any file. What was changed under one is in the health, too.
				if other := n.name == "/w/b" || n.name == "/w/d-other/s"; other && certainty != " :mounts" &&
					(want == Fail || certainty == " :tried" || c.verb == "write") {
					want = Pass
				}
				lines := fmt.Sprintf("%s%s %s%s", n.lines, c.verb, n.name, certainty)
				if got := lastLine(t, c.rule, c.def, lines); got != want {
					t.Errorf("%s, %s by %s%s: %s, want %s", c.rule, c.verb, how, certainty, got, want)
				}
			}
		}
	}
}

// TestHistoryFollowsRepositories reads git's objects with a program that is not git. Moving, linking or mounting them
// is a doubt by itself.
func TestHistoryFollowsRepositories(t *testing.T) {
	const file = "/app/.git/objects/pack/p"
	for name, c := range map[string]struct{ lines, want string }{
		"its name":                  {"read " + file, Unknown},
		"a rename":                  {"rename " + file + " /w/x", Unknown},
		"a rename of its directory": {"rename /app/.git /w/d", Unknown},
		"a rename of its workspace": {"rename /app /w/d", Unknown},
		"an exchange":               {"exchange /w/d /app/.git", Unknown},
		"a hard link":               {"link " + file + " /w/x", Unknown},
		"a bind mount":              {"bind-mount /m /app/.git", Unknown},
		"a written reference":       {"create /app/.git/refs/heads/x", Unknown},
		"a renamed one":             {"create /w/x; rename /w/x /app/.git/refs/heads/x", Unknown},
		"another repository":        {"read /w/d/.git/objects/pack/p", Pass},
		"failed":                    {"read " + file + " :failed", Pass},
		"tried":                     {"read " + file + " :tried", Unknown},
		"a claimed directory":       {"read " + file + " :directory", Unknown},
		"by a check":                {"read " + file + " :check", Pass},
		"by the recorder":           {"read " + file + " :runner", Pass},
	} {
		if got := stateOf(t, ruleHistory, schema.EvaluationDefinition{StartCommit: "3f2a9c1d"}, false, c.lines); got !=
			c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
