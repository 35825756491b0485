//go:build linux

package suite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Status is how far a suite has come, by its ledger.
type Status struct {
	Suite string `json:"suite"`
	// Running names the process that runs the suite; empty if there is none.
	Running string `json:"running"`
	// Attempts counts all attempts, and the next fields those with each verdict.
	Attempts       int `json:"attempts"`
	Passed         int `json:"passed"`
	Failed         int `json:"failed"`
	Inconclusive   int `json:"inconclusive"`
	Infrastructure int `json:"infrastructure"`
	Pending        int `json:"pending"`
	Suspicious     int `json:"suspicious"`
	// Open are the tries without a verdict.
	Open []OpenTry `json:"open"`
}

// OpenTry is a try without a verdict.
type OpenTry struct {
	ID     string `json:"id"` // task/agent/attempt
	Try    int    `json:"try"`
	Opened string `json:"opened"` // wall clock, RFC 3339 in UTC
	Worker string `json:"worker"` // empty until a worker begins it
}

// History is what the ledger says about one attempt.
type History struct {
	Attempt
	// Tries are the decided ones, including those before an edit of the suite.
	Tries []schema.SuiteTry
	// Inputs is the directory with what the last try was given, relative to the suite's; empty if it was not kept.
	Inputs string

	valid int                 // index of the first of Tries that was made since the last edit
	open  map[string]*OpenTry // by token
}

// Read reads the ledger of the suite in a directory, even while a process runs it. The attempts are in the order of
// their first tries.
func Read(dir string) (*Status, []*History, error) {
	lines, err := ledger.Read(dir)
	if err != nil {
		return nil, nil, err
	}
	running, err := ledger.Holder(dir)
	if err != nil {
		return nil, nil, err
	}
	s := &Status{Running: running, Open: []OpenTry{}}
	var order []*History
	of := map[Attempt]*History{}
	type step struct { // in what blame is told
		of   *History // whose try ended; nil: a worker goes on
		i    int      // of the try
		back ledger.Line
	}
	var steps []step
	var definitions map[string]map[string]string
	for _, line := range lines {
		switch line.Kind {
		case ledger.Created:
			s.Suite, s.Attempts, definitions = line.Suite, line.Attempts, line.Definitions
			continue
		case ledger.Edited:
			s.Attempts = cmp.Or(line.Attempts, s.Attempts)
			for _, h := range order {
				if !same(definitions, line.Definitions, h.Attempt) {
					h.valid = len(h.Tries)
				}
			}
			definitions = line.Definitions
			continue
		case ledger.Back:
			steps = append(steps, step{back: line})
			continue
		}
		h := of[line.Attempt]
		if h == nil && line.Task != "" {
			h = &History{Attempt: line.Attempt, open: map[string]*OpenTry{}}
			of[line.Attempt] = h
			order = append(order, h)
		}
		if h != nil {
			h.add(line)
			if line.Kind == ledger.Verdict {
				steps = append(steps, step{of: h, i: len(h.Tries) - 1})
			}
		}
	}
	blame := newBlame()
	for _, s := range steps {
		switch {
		case s.of == nil:
			blame.lives(process(s.back.Instance), s.back.Stopped)
		case s.i >= s.of.valid:
			blame.add(s.of.Attempt, &s.of.Tries[s.i])
		}
	}
	for _, h := range order {
		if definitions["task "+h.Task] == nil || definitions["agent "+h.Agent] == nil {
			continue // the task or the agent was removed from the suite
		}
		s.count(h, blame)
	}
	s.Attempts = max(s.Attempts, s.Passed+s.Failed+s.Inconclusive+s.Infrastructure)
	s.Pending = s.Attempts - s.Passed - s.Failed - s.Inconclusive - s.Infrastructure
	return s, order, nil
}

// same reports whether the task and the agent of an attempt have the same definitions in both editions of a suite.
func same(a, b map[string]map[string]string, of Attempt) bool {
	return maps.Equal(a["task "+of.Task], b["task "+of.Task]) && maps.Equal(a["agent "+of.Agent], b["agent "+of.Agent])
}

func (h *History) add(line ledger.Line) {
	switch line.Kind {
	case ledger.Opened:
		h.open[line.Token] = &OpenTry{ID: h.String(), Try: line.Try, Opened: line.At}
		h.Inputs = cmp.Or(line.Inputs, h.Inputs)
	case ledger.Began:
		if t := h.open[line.Token]; t != nil {
			t.Worker = line.Worker
		}
	case ledger.Verdict:
		delete(h.open, line.Token)
		h.Inputs = cmp.Or(line.Inputs, h.Inputs)
		h.Tries = append(h.Tries, *line.Verdict)
	}
}

// Verdict is the last try, if it has a verdict that counts; otherwise nil.
func (h *History) Verdict() *schema.SuiteTry {
	if len(h.Tries) == h.valid {
		return nil
	}
	last := &h.Tries[len(h.Tries)-1]
	if last.Class == schema.SuiteInterrupted || last.Class == schema.SuiteNotBegun {
		return nil
	}
	return last
}

// RepeatCommands returns sh commands that repeat an attempt by hand, in a new directory "again" with a copy of the
// task's workspace. dir is the suite's directory, and program the path of assay-run.
func (h *History) RepeatCommands(dir, program string) (string, error) {
	if h.Inputs == "" || !filepath.IsLocal(h.Inputs) {
		return "", errors.New("its inputs were not kept")
	}
	inputs, err := filepath.Abs(filepath.Join(dir, h.Inputs))
	if err != nil {
		return "", err
	}
	data, err := config.ReadFile(filepath.Join(inputs, inputsWork), maxFile)
	if err != nil {
		return "", err
	}
	w := &tryWork{Spec: &specfile.Spec{}}
	if err := json.Unmarshal(data, w); err != nil {
		return "", err
	}
	if w.Plan != nil {
		return "", errors.New("its task is a folder: run the suite again with another --dir")
	}
	from := "mkdir again"
	if w.Workspace != "" {
		from = "cp -a " + quoted(w.Workspace) + " again"
	}
	env := []string{"env -i"}
	for _, kv := range environ(w.Env) {
		name, _, _ := strings.Cut(kv, "=")
		env = append(env, name+`="$`+name+`"`)
	}
	slices.Sort(env[1:])
	prompt := filepath.Join(inputs, inputsPrompt)
	run := []string{quoted(program), "run", "--spec", quoted(filepath.Join(inputs, inputsSpec)),
		"--env", envAttempt + "=" + strconv.Itoa(h.Attempt.Attempt), "--env", quoted(envPromptFile + "=" + prompt)}
	if len(w.Prompt) > maxWord {
		run = append(run, "--env", quoted(envPrompt+"="+inFile(prompt)))
	}
	run = append(run, "--workdir", quoted(cmp.Or(w.Place, "again")), "-o", "again.tar.gz")
	command := strings.Join(env, " ") + " \\\n" + strings.Join(run, " ")
	if w.Place != "" {
		command = "unshare --mount sh -c " + quoted("mount --bind again "+quoted(w.Place)+" && exec "+command)
	}
	return from + " && \\\n" + command, nil
}

func (s *Status) count(h *History, blame *blame) {
	for _, token := range slices.Sorted(maps.Keys(h.open)) {
		s.Open = append(s.Open, *h.open[token])
	}
	for _, t := range h.Tries[h.valid:] {
		if len(t.Suspicions) > 0 {
			s.Suspicious++
			break
		}
	}
	last := h.Verdict()
	if last == nil || len(h.open) > 0 {
		return
	}
	if t, _ := blame.try(h.Attempt, h.Tries[h.valid:]); t != nil {
		s.Failed++
		return
	}
	switch last.Verdict {
	case schema.SuitePassed:
		s.Passed++
	case schema.SuiteFailed:
		s.Failed++
	case schema.SuiteInconclusive:
		s.Inconclusive++
	default:
		s.Infrastructure++
	}
}

// Find returns the history of the attempt with the given id (task/agent/attempt).
func Find(all []*History, id string) (*History, error) {
	for _, h := range all {
		if h.String() == id {
			return h, nil
		}
	}
	return nil, fmt.Errorf("the suite has not tried %q", id)
}
