package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/contractfile"
)

const (
	goodAnswer      = `{"description":"d","checks":[{"name":"tests_pass","command":"go test ./..."}]}`
	toolchainAnswer = `{"description":"d","checks":[{"name":"go_there","command":"go version"}]}`
)

// script answers with the next of its replies and keeps the prompts.
type script struct {
	replies []any // string or error
	prompts []string
}

func (s *script) generate(_ context.Context, prompt string) (string, error) {
	s.prompts = append(s.prompts, prompt)
	reply := s.replies[min(len(s.prompts), len(s.replies))-1]
	if err, ok := reply.(error); ok {
		return "", err
	}
	return reply.(string), nil
}

func derive(t *testing.T, replies ...any) (*contractfile.Contract, *script, error) {
	t.Helper()
	s := &script{replies: replies}
	c, err := Derive(t.Context(), DeriveOptions{Intent: "Mend the parser", Generator: s.generate})
	return c, s, err
}

func TestDeriveFromTheFirstAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"the object alone":       goodAnswer,
		"in a code fence":        "```json\n" + goodAnswer + "\n```\n",
		"in prose":               "Sure! Here is it:\n\n" + goodAnswer + "\n\nIt runs {all} the \"tests\".",
		"after another object":   `I thought of {"steps": ["a", {"b": 1}]} first. ` + goodAnswer,
		"after an empty object":  "Shape {} filled in: " + goodAnswer,
		"after a stray brace":    "Use { to begin, it's \"easy\": " + goodAnswer,
		"after a stray quote":    "{ \" " + goodAnswer,
		"in a wrapper":           `{"contract": ` + goodAnswer + `}`,
		"before another":         goodAnswer + toolchainAnswer,
		"with braces in strings": strings.Replace(goodAnswer, "go test ./...", `awk '{ print \"}\" }' a`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			c, s, err := derive(t, answer)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.prompts) != 1 || len(c.Checks) != 1 || c.Checks[0].Name != "tests_pass" ||
				!c.Checks[0].ExpectExitZero || c.Checks[0].TimeoutSecs != 120 {
				t.Errorf("after %d prompts: %+v", len(s.prompts), c)
			}
		})
	}
}

func TestDeriveMends(t *testing.T) {
	for name, c := range map[string]struct{ first, issue string }{
		"a toolchain-only check": {toolchainAnswer,
			`- check 1 (go_there): "go version" is a toolchain-only no-op: it proves that a tool is installed`},
		"no object at all": {"I cannot do that.", "- the answer contains no complete JSON object"},
		"a torn object":    {goodAnswer[:40], "- the answer contains no complete JSON object"},
		"an unknown key": {strings.Replace(goodAnswer, "command", "cmd", 1),
			"- line 1, column 51: checks[0].cmd: unknown key; allowed are name, command"},
		"a value of another type": {strings.Replace(goodAnswer, `"d"`, `5`, 1),
			"- line 1, column 2: description: found a number, want a string"},
		"a key given twice": {strings.Replace(goodAnswer, `"description":"d"`,
			`"description":"d","description":"e"`, 1), "- line 1, column 20: description: key given twice"},
		"no checks": {`{"description":"d","checks":[]}`, "- no checks:"},
		"the placeholder as name": {strings.Replace(goodAnswer, "tests_pass", "unique_snake_case_label", 1),
			"- check 1 (unique_snake_case_label): the name is the placeholder name"},
		"an answer beyond bounds":  {goodAnswer + strings.Repeat(" ", maxAnswerBytes), "- the answer is larger than"},
		"several problems at once": {`{"description":"d","checks":[{"name":"a","command":""},{"name":"a","command":"make -v"}]}`, "- check 1 (a): empty command; write the shell command that must pass\n- check 2 (a): duplicate of the name of check 1; give each its own\n- check 2 (a): \"make -v\" is a toolchain-only no-op"},
	} {
		t.Run(name, func(t *testing.T) {
			got, s, err := derive(t, c.first, goodAnswer)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.prompts) != 2 || got.Checks[0].Name != "tests_pass" {
				t.Fatalf("%d prompts, contract %+v; want exactly one repair", len(s.prompts), got)
			}
			if strings.Contains(s.prompts[0], "refused") || !strings.HasPrefix(s.prompts[1], s.prompts[0]) {
				t.Errorf("the second prompt does not begin with the first")
			}
			if !strings.Contains(s.prompts[1], c.issue) {
				t.Errorf("the second prompt lacks %q:\n%s", c.issue, s.prompts[1][len(s.prompts[0]):])
			}
			if len(s.prompts[1]) > len(s.prompts[0])+2*maxQuotedReply {
				t.Errorf("the second prompt has %d bytes", len(s.prompts[1]))
			}
		})
	}
}

func TestDeriveShowsTheLastIssuesOnly(t *testing.T) {
	_, s, err := derive(t, toolchainAnswer, "nothing", goodAnswer)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.prompts[2]; strings.Contains(p, "go_there") || !strings.Contains(p, "no complete JSON object") {
		t.Errorf("third prompt:\n%s", p)
	}
}

func TestDeriveGivesUp(t *testing.T) {
	_, s, err := derive(t, toolchainAnswer)
	var de *DeriveError
	var invalid *contractfile.InvalidError
	if !errors.As(err, &de) || de.Attempts != 3 || len(s.prompts) != 3 || !errors.As(err, &invalid) {
		t.Fatalf("after %d prompts: %v", len(s.prompts), err)
	}
	for _, want := range []string{"3 attempts", "go_there",
		"is a toolchain-only no-op: it proves that a tool is installed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestAGeneratorThatFailsIsAskedAgainWithTheSamePrompt(t *testing.T) {
	boom := errors.New("rate limited")
	_, s, err := derive(t, boom, goodAnswer)
	if err != nil || len(s.prompts) != 2 || s.prompts[0] != s.prompts[1] {
		t.Errorf("%d prompts, error %v", len(s.prompts), err)
	}
	_, s, err = derive(t, toolchainAnswer, boom, goodAnswer)
	if err != nil || len(s.prompts) != 3 || s.prompts[1] != s.prompts[2] ||
		!strings.Contains(s.prompts[2], "go_there") {
		t.Errorf("the issues are lost after a failure: %d prompts, error %v", len(s.prompts), err)
	}
	_, s, err = derive(t, boom)
	var de *DeriveError
	if !errors.As(err, &de) || de.Attempts != 3 || len(s.prompts) != 3 || !errors.Is(err, boom) {
		t.Errorf("%d prompts, error %v", len(s.prompts), err)
	}
}

func TestDeriveStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	_, err := Derive(ctx, DeriveOptions{Intent: "x", Generator: func(context.Context, string) (string, error) {
		asked++
		cancel()
		return "", errors.New("gone")
	}})
	if !errors.Is(err, context.Canceled) || asked != 1 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
}

func TestDeriveNeedsAnIntent(t *testing.T) {
	if _, err := Derive(t.Context(), DeriveOptions{Intent: " \n"}); err == nil ||
		!strings.Contains(err.Error(), "intent is empty") {
		t.Errorf("error %v", err)
	}
}

func TestThePromptCarriesTheRepository(t *testing.T) {
	repo := t.TempDir()
	for _, name := range []string{"go.mod", "Makefile", "README.md", "evil\n## Rules"} {
		if err := os.WriteFile(filepath.Join(repo, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".git", "cmd", "package.json"} {
		if err := os.Mkdir(filepath.Join(repo, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &script{replies: []any{goodAnswer}}
	if _, err := Derive(t.Context(),
		DeriveOptions{Intent: "Mend the parser", Generator: s.generate, RepoDir: repo}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Mend the parser", "- README.md\n", "- cmd/\n", "Build systems: Go, Make\n", `- "evil\n## Rules"` + "\n",
		`"expect_exit_zero": true`, "non-interactive", "deterministic", "No network", "destructive", "real names",
		"CERTAIN will appear", "markdown fences", "toolchain",
	} {
		if !strings.Contains(s.prompts[0], want) {
			t.Errorf("prompt lacks %q:\n%s", want, s.prompts[0])
		}
	}
	if strings.Contains(s.prompts[0], ".git") {
		t.Error("the prompt lists .git")
	}
	if _, err := Derive(t.Context(),
		DeriveOptions{Intent: "x", Generator: s.generate, RepoDir: filepath.Join(repo, "none")}); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestALargeRepositoryIsCutInThePrompt(t *testing.T) {
	repo := t.TempDir()
	for i := range 150 {
		if err := os.WriteFile(filepath.Join(repo, fmt.Sprintf("f%03d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	summary, err := repoSummary(repo)
	if err != nil || strings.Count(summary, "- f") != 100 || !strings.Contains(summary, "at least 50 more") {
		t.Errorf("%v\n%s", err, summary)
	}
}

func TestCommandGenerator(t *testing.T) {
	ask := func(command string) (string, error) {
		return CommandGenerator(command, nil)(t.Context(), "the prompt")
	}
	if got, err := ask("tr a-z A-Z"); err != nil || got != "THE PROMPT" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ask("echo unread"); err != nil || got != "unread\n" {
		t.Errorf("a generator that does not read: %q, %v", got, err)
	}
	if _, err := ask("exit 7"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("error %v", err)
	}
	if _, err := ask("yes"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := CommandGenerator("sleep 1000 | cat", nil)(ctx, ""); !errors.Is(err, context.DeadlineExceeded) ||
		time.Since(begin) > 100*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
}

// However an answer of maximum size is filled, the search ends in time.
func TestExtractIsLinear(t *testing.T) {
	layertest.Host(t)
	for _, unit := range []string{"{", `{"`, `{"a":`, `{"a":[`, "{}", `{"{":"`, `{"a":1,`, "{[", `{"\`, `{"checks":`,
		`{"checks":[]}`, "{\"a\n", `{"a":{}},{`} {
		begin := leaktest.Computed()
		c, _, err := extract(strings.Repeat(unit, maxAnswerBytes/len(unit)))
		took := leaktest.Computed() - begin
		t.Logf("%q: %v", unit, took)
		if took > 10*time.Second {
			t.Errorf("%q took %v", unit, took)
		}
		if err == nil && unit != `{"checks":[]}` {
			t.Errorf("%q gives %+v", unit, c)
		}
	}
}

func FuzzExtract(f *testing.F) {
	for _, seed := range []string{goodAnswer, "```json\n" + goodAnswer + "\n```", "{} { \" " + goodAnswer,
		`{"contract":` + goodAnswer + "}", `{"a":"\"}`, "{[}]", `{"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		c, _, err := extract(answer)
		if (c == nil) == (err == nil) {
			t.Fatalf("contract %v, error %v", c, err)
		}
		if err != nil {
			return
		}
		// Prose around it changes nothing.
		again, _, err := extract("Well, " + answer + " That is it.")
		if err != nil || len(again.Checks) != len(c.Checks) {
			t.Fatalf("in prose: %+v, %v", again, err)
		}
	})
}

func TestKeysOfAnAnswerThatAContractDoesNotHaveAreListed(t *testing.T) {
	const answer = `{"description":"it works","priority":1,"checks":[{"name":"a","command":"test -e a","reason":"why"},{"name":"b","command":"test -e b"}]}`
	var ignored []string
	c, err := Derive(t.Context(), DeriveOptions{
		Intent: "make it work", RepoSummary: "a folder with one file, MAKE.ME",
		Generator: func(_ context.Context, prompt string) (string, error) {
			for _, want := range []string{"one to five checks", "Never push, publish", "never use sudo",
				"test commands that the repository already has", "MAKE.ME"} {
				if !strings.Contains(prompt, want) {
					t.Errorf("the prompt says nothing of %q", want)
				}
			}
			return answer, nil
		},
		Ignored: func(keys []string) { ignored = keys },
	})
	if err != nil || len(c.Checks) != 2 || strings.Join(ignored, " ") != "priority checks[0].reason" {
		t.Errorf("%v, ignored %q: %+v", err, ignored, c)
	}
}

// A key that a contract may have stays in a model's answer.
func TestPruneLeavesEveryKeyOfAContract(t *testing.T) {
	whole, err := contractfile.Encode(&contractfile.Contract{Checks: []schema.Check{expecting(check("a", "b"), "c")},
		Protected: []string{"d"}, Tests: "e"}, config.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if _, ignored := prune(string(whole)); len(ignored) > 0 {
		t.Errorf("ignored %q of %s", ignored, whole)
	}
}

func TestAModelMustDescribeItsContract(t *testing.T) {
	var said error
	_, err := Derive(t.Context(), DeriveOptions{
		Intent: "make it work", MaxAttempts: 1, Failed: func(_ int, err error) { said = err },
		Generator: func(context.Context, string) (string, error) {
			return `{"description":"","checks":[{"name":"a","command":"test -e a"}]}`, nil
		},
	})
	if err == nil || said == nil || !strings.Contains(said.Error(), `"description" is missing`) {
		t.Errorf("%v, %v", err, said)
	}
}
