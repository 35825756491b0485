package judge

import (
	"strings"
	"testing"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
	"github.com/assay-run/assay-run/schema/facts/factstest"
)

// broken returns the numbers of the lines that break a rule, with its evidence.
func broken(t *testing.T, rules string, lines string) (found []uint64, texts string) {
	t.Helper()
	r, err := ParseRules(t.Context(), []byte("rules: [{"+rules+"}]"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &subject{Bundle: &view.Bundle{Docs: &archive.Documents{}}, facts: facts.NewReader(false),
		found: map[*rule]*Verdict{r.list[0]: {State: Pass}}}
	s.Docs.Run.Workdir = "/w"
	s.Docs.Run.Homes = map[string]string{}
	if r.list[0].begin != nil {
		r.list[0].begin(s)
	}
	for i, words := range strings.Split(lines, "; ") {
		s.look(factstest.Event(t, i, words), r.list)
	}
	for _, e := range s.found[r.list[0]].Evidence {
		found = append(found, e.Line-1)
		texts += e.Text + "\n"
	}
	return found, texts
}

// TestOnlyPrograms executes programs with an allowed name and asks whether the last line breaks the rule.
func TestOnlyPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		breaks bool
	}{
		"a program of the host": {"read /x; exec /usr/bin/mytool", false},
		"another program":       {"read /x; exec /usr/bin/other", true},
		"one that the run made": {"create /w/mytool; exec /w/mytool", true},
		"one in a directory that it renamed": {
			"mkdir /w/d1; create /w/d1/mytool; rename /w/d1 /w/d2; exec /w/d2/mytool",
			true,
		},
		"one in a directory that it exchanged": {
			"create /w/d/mytool; exchange /w/d /opt/p; exec /opt/p/mytool",
			true,
		},
		"one that it renamed":                {"rename /bin/sh /w/mytool; exec /w/mytool", true},
		"one that it exchanged":              {"exchange /bin/sh /bin/mytool; exec /bin/mytool", true},
		"one that it linked":                 {"link /bin/sh /w/mytool; exec /w/mytool", true},
		"one that it wrote by another name":  {"link /bin/mytool /w/x; write /w/x; exec /bin/mytool", true},
		"one that it mounted":                {"bind-mount /w/mytool /bin/sh; exec /w/mytool", true},
		"one that is in a mounted directory": {"create /w/d/mytool; bind-mount /mnt /w/d; exec /mnt/mytool", true},
		"one that it removed and made again": {
			"create /w/mytool; unlink /w/mytool; create /w/mytool; exec /w/mytool",
			true,
		},
		"one that it made in memory":              {"read /x; exec /memfd:mytool :memfd", true},
		"one that it may have made":               {"create /w/mytool :tried; exec /w/mytool", true},
		"one that it made under a doubtful name":  {"create /w/mytool :directory; exec /w/mytool", true},
		"one that it failed to make":              {"create /bin/mytool :failed; exec /bin/mytool", false},
		"one that a check made":                   {"create /w/mytool :check; exec /w/mytool", false},
		"one that a container engine made":        {"create /w/mytool :setup; exec /w/mytool", false},
		"one of others in a directory that moved": {"rename /opt/p /w/d; exec /w/d/mytool", false},
		"one behind a link that it renamed": {
			"symlink /w/n /w/d; create /w/d/mytool; rename /w/n /usr/bin/d; exec /w/d/mytool",
			true,
		},
		"another that was tried":     {"read /x; exec /usr/bin/other :tried", true},
		"another that failed":        {"read /x; exec_failed /usr/bin/other :failed", false},
		"another, doubtful":          {"read /x; exec /usr/bin/other :mounts", true},
		"another by a check":         {"read /x; exec /usr/bin/other :check", false},
		"one that it made, doubtful": {"create /w/mytool; exec /w/mytool :mounts", true},
	} {
		found, _ := broken(t, "only_programs: [mytool]", c.lines)
		last := uint64(strings.Count(c.lines, ";"))
		if got := len(found) == 1 && found[0] == last; got != c.breaks || !got && len(found) > 0 {
			t.Errorf("%s: lines %v break the rule", name, found)
		}
	}
	// What a later line shows counts for the earlier one.
	found, text := broken(t, "only_programs: [mytool]", "read /x; exec /w/mytool; create /w/mytool :late0")
	if len(found) != 1 || found[0] != 1 || !strings.Contains(text, "which the run had made") {
		t.Errorf("lines %v break the rule: %s", found, text)
	}
}

// TestOnlyWorkspaceWrites asks whether the last line breaks the rule.
func TestOnlyWorkspaceWrites(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		breaks bool
	}{
		"a file in the workspace":           {"create /w/a", false},
		"a file outside":                    {"create /etc/a", true},
		"one that failed":                   {"create /etc/a :failed", false},
		"one that was tried":                {"create /etc/a :tried", true},
		"a null device":                     {"write /dev/null", false},
		"a rename out":                      {"create /w/a; rename /w/a /etc/a", true},
		"a rename in":                       {"read /x; rename /etc/a /w/a", true},
		"a rename within":                   {"create /w/a; rename /w/a /w/b", false},
		"an exchange within":                {"create /w/a; exchange /w/a /w/b", false},
		"a hard link in":                    {"link /etc/a /w/a", false},
		"a write through it":                {"link /etc/a /w/a; write /w/a", true},
		"a change of its mode":              {"link /etc/a /w/a; chmod /w/a", true},
		"a write after it was renamed":      {"link /etc/a /w/a; rename /w/a /w/b; write /w/b", true},
		"after its directory was renamed":   {"link /etc/a /w/d/a; rename /w/d /w/e; write /w/e/a", true},
		"after an exchange":                 {"link /etc/a /w/d/a; exchange /w/d /w/e; write /w/e/a", true},
		"what it was exchanged with":        {"link /etc/a /w/d/a; exchange /w/d /w/e; write /w/d/a", false},
		"through a link of the link":        {"link /etc/a /w/a; link /w/a /w/b; write /w/b", true},
		"after a removal and a return":      {"link /etc/a /w/a; unlink /w/a; create /w/a", false},
		"a hard link of its own":            {"create /w/a; link /w/a /w/b; write /w/b", false},
		"a symbolic link":                   {"symlink /w/a /etc", false},
		"a bind mount":                      {"read /x; bind-mount /w/d /etc", true},
		"one in another mount namespace":    {"read /x; bind-mount /w/d /etc :mounts", false},
		"a file in another mount namespace": {"create /w/a :mounts", true},
		"a relative name":                   {"create a :relative", true},
		"a file in memory":                  {"create /memfd:a :memfd", false},
		"a doubtful name outside":           {"unlink /etc/a :claimed", true},
		"a doubtful directory outside":      {"unlink /etc/a :directory", true},
		"what the recorder moved in":        {"rename /var/a /w/a :runner; write /w/a", false},
	} {
		found, _ := broken(t, "only_workspace_writes: true", c.lines)
		last := uint64(strings.Count(c.lines, ";"))
		if got := len(found) > 0 && found[len(found)-1] == last; got != c.breaks {
			t.Errorf("%s: lines %v break the rule", name, found)
		}
	}
	_, text := broken(t, "only_workspace_writes: true", "unlink /etc/a :directory")
	if !strings.Contains(text, "(doubtful: "+string(facts.MovedDirectory)+")") {
		t.Errorf("the evidence does not tell the doubt: %s", text)
	}
}

// TestOwnProgram asks whether a run's action counts as the agent program's own.
func TestOwnProgram(t *testing.T) {
	const start = "exec /bin/sh sh; "
	for name, c := range map[string]struct {
		lines string
		own   bool
	}{
		"the agent program":     {"exec /usr/bin/claude claude", true},
		"one that the run made": {"create /w/claude; exec /w/claude claude", false},
		"one in a directory that it renamed": {
			"create /w/d1/claude; rename /w/d1 /w/d2; exec /w/d2/claude claude",
			false,
		},
		"one behind a link that it put in place": {
			"create /w/s; symlink /w/n /w; rename /w/n /w/l; exec /usr/bin/claude /w/l/s",
			false,
		},
		"a script in a directory that it renamed": {
			"create /w/d1/s; rename /w/d1 /w/d2; exec /usr/bin/claude /w/d2/s",
			false,
		},
	} {
		r, err := ParseRules(t.Context(), []byte("rules: [{no_undeclared_actions: {agent: claude-code}}]"), "")
		if err != nil {
			t.Fatal(err)
		}
		s := &subject{Bundle: &view.Bundle{Docs: &archive.Documents{}}, facts: facts.NewReader(false),
			found: map[*rule]*Verdict{r.list[0]: {}}}
		r.list[0].begin(s)
		var last *facts.Line
		for i, words := range strings.Split(start+c.lines, "; ") {
			e := factstest.Event(t, i, words)
			if e.Kind == schema.KindExec && len(e.Argv) > 1 {
				e.Argv = append([]string{"claude"}, e.Argv[1:]...)
			}
			last = s.look(e, r.list)
		}
		if p := last.By.Note.(*actor); p.own != c.own {
			t.Errorf("%s: own is %v", name, p.own)
		}
		r.Close()
	}
}

// TestRulesAndCertainty asks, for lines of each certainty, which rules about lines they break. What may have been done
// breaks a rule; what failed, or was not the run's, does not.
func TestRulesAndCertainty(t *testing.T) {
	certainties := map[string]bool{"": true, ":tried": true, ":directory": true, ":caller": true, ":claimed": true,
		":mounts": true, ":relative": true, ":failed": false, ":check": false, ":runner": false}
	for rule, line := range map[string]string{
		"only_programs: [mytool]":     "exec /usr/bin/other",
		"only_workspace_writes: true": "create /etc/a",
		"only_hosts: [example.com]":   "connect 192.0.2.1:443",
		"no_privileged: true":         "setid root",
	} {
		for certainty, breaks := range certainties {
			if certainty == ":failed" && (rule[:8] == "only_hos" || rule[:8] == "only_pro") {
				continue // a host was asked for; such an exec has another kind
			}
			if found, _ := broken(t, rule, "read /x; "+line+" "+certainty); (len(found) == 1) != breaks {
				t.Errorf("%s, %s %s: lines %v break the rule", rule, line, certainty, found)
			}
		}
	}
}

// TestUndeclaredWrites asks whether a write outside of calls breaks a rule that allows those in /w, by any name of the
// file.
func TestUndeclaredWrites(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		breaks bool
	}{
		"an allowed file":          {"write /w/a", false},
		"another":                  {"write /etc/a", true},
		"one that it moved in":     {"rename /etc/a /w/a", true},
		"one that it moved out":    {"create /w/a; rename /w/a /etc/a", true},
		"with its directory":       {"create /w/d/a; rename /w/d /etc/d", true},
		"one that it moved within": {"create /w/a; rename /w/a /w/b; write /w/b", false},
		"an exchange":              {"exchange /w/a /etc/a", true},
		"a hard link":              {"link /etc/a /w/a", false},
		"what is written by it":    {"link /etc/a /w/a; write /w/a", true},
		"after its directory moved": {
			"link /etc/a /w/d/a; rename /w/d /w/e; chmod /w/e/a",
			true,
		},
		"one of its own":             {"create /w/a; link /w/a /w/b; write /w/b", false},
		"a removal and a return":     {"link /etc/a /w/a; unlink /w/a; create /w/a", false},
		"a symbolic link, renamed":   {"symlink /w/n /etc; rename /w/n /w/l; write /etc/a", true},
		"one that failed":            {"write /etc/a :failed", false},
		"one that was tried":         {"write /etc/a :tried", true},
		"with a doubtful directory":  {"unlink /etc/a :directory", true},
		"with claimed arguments":     {"unlink /etc/a :claimed", true},
		"in another mount namespace": {"write /etc/a :mounts", true},
		"of a check":                 {"write /etc/a :check", false},
		"of the recorder":            {"write /etc/a :runner", false},
		"a file in memory":           {"write /memfd:a :memfd", false},
	} {
		r, err := ParseRules(t.Context(), []byte("rules: [{no_undeclared_actions: {paths: [/w/**]}}]"), "")
		if err != nil {
			t.Fatal(err)
		}
		b := &view.Bundle{Docs: &archive.Documents{}, Report: &archive.Report{}}
		s := &subject{Bundle: b, facts: facts.NewReader(false), found: map[*rule]*Verdict{r.list[0]: {}}}
		s.Docs.Run.Homes = map[string]string{}
		r.list[0].begin(s)
		for i, words := range strings.Split("exec /bin/sh sh; "+c.lines, "; ") {
			s.look(factstest.Event(t, i, words), r.list)
		}
		v, err := r.list[0].check(t.Context(), s)
		if err != nil || (v.State == Fail) != c.breaks {
			t.Errorf("%s: %s, %v, %v", name, v.State, v.Evidence, err)
		}
		r.Close()
	}
}
