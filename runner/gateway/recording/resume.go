package recording

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// ErrPolicy is returned by [Resume], wrapped, where another policy is in force now
// than the run began with.
var ErrPolicy = errors.New("the run began with another policy")

// Lost is a call that the policy allowed and that has no end on record: it was in
// flight when the recorder died.
type Lost struct {
	Tool, ToolCallID string
	TNS              time.Duration // when it was decided, since the run's 0
	Turn             bool          // its turn is on record
}

// Resume makes an open run that goes on where its recorder died, from its layers and
// documents in dir. The rules that clients added are in force again.
func Resume(to Recording, o Options, key, dir string) (_ *Run, lost []Lost, err error) {
	r := New(to, o)
	var s schema.GatewaySession
	if err := Document(dir, schema.SessionPath, &s); err != nil {
		return nil, nil, err
	}
	r.start, r.key = Start{AgentID: s.AgentID, Intent: s.Intent, OutcomeDescription: s.OutcomeDescription}, key
	r.state, r.tStart = Open, time.Duration(s.TStartNS)
	r.State.Set("run", Open)
	if err := r.resumeRules(dir); err != nil {
		return nil, nil, err
	}
	open := map[string][]Lost{}
	var order []string
	err = EachLine(dir, schema.PolicyPath, func(line []byte) error {
		var e schema.PolicyEvent
		err := json.Unmarshal(line, &e)
		if e.Source == agentlog.GatewaySource && e.Decision == "allow" {
			if len(open[e.ToolCallID]) == 0 {
				order = append(order, e.ToolCallID)
			}
			open[e.ToolCallID] = append(open[e.ToolCallID], Lost{Tool: e.Tool, ToolCallID: e.ToolCallID, TNS: time.Duration(e.TNS)})
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	turns := map[string]int{}
	verdict := ""
	err = EachLine(dir, schema.TurnsPath, func(line []byte) error {
		var t schema.Turn
		if err := json.Unmarshal(line, &t); err != nil {
			return err
		}
		r.measure(t.Seq, len(line)+1)
		r.turns++
		r.blobs.count(&t.TurnBody)
		if t.Source == "gateway" {
			turns[t.ToolCallID]++
			if t.VerifierVerdict != schema.VerdictNotRun {
				verdict = t.VerifierVerdict
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = EachLine(dir, schema.AuditPath, func(line []byte) error {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			return err
		}
		r.calls[e.Outcome.Kind]++
		if !e.DryRun {
			r.State.Ended(e.ToolID, &e.Outcome, schema.VerdictNotRun)
			if k := e.Outcome.Kind; k == schema.CallSuccess || k == schema.CallExecutionFailed {
				r.State.Set("last_tool", e.ToolID)
			}
		}
		turns[e.ToolCallID]--
		if calls := open[e.ToolCallID]; len(calls) > 0 {
			open[e.ToolCallID] = calls[1:]
		}
		return nil
	})
	if verdict != "" {
		r.State.Set("verdict", verdict)
	}
	for _, id := range order {
		for _, l := range open[id] {
			l.Turn = turns[id] > 0
			turns[id]--
			lost = append(lost, l)
		}
		delete(open, id)
	}
	if blobs, err := os.ReadDir(filepath.Join(dir, schema.BlobsDir)); err == nil {
		for _, blob := range blobs {
			if info, err := blob.Info(); err == nil {
				r.blobs.stored += info.Size()
			}
		}
	}
	return r, lost, err
}

// resumeRules puts the rules that clients added in force again.
func (r *Run) resumeRules(dir string) error {
	now, any := r.Rules.Document(r.ID)
	var was schema.Policy
	switch err := Document(dir, schema.PolicyFilePath, &was); {
	case errors.Is(err, os.ErrNotExist) && !any:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return ErrPolicy
	case err != nil:
		return err
	}
	if (was.Digest == nil) != (now.Digest == nil) || was.Digest != nil && *was.Digest != *now.Digest {
		return ErrPolicy
	}
	for _, c := range was.ClientRules {
		rule := policy.Rule{
			Name: c.Name, Rule: c.Rule, Target: c.Target, Key: c.Key, Pattern: c.Pattern, Value: c.Values, ValuePath: c.Paths,
		}
		if err := r.Rules.Add(rule, time.Duration(c.TNS)); err != nil {
			return fmt.Errorf("%s: %w", schema.PolicyFilePath, err)
		}
	}
	return nil
}

// Document decodes a document in dir, where [Resume] finds them. A missing one is an
// error that is [os.ErrNotExist].
func Document(dir, path string, into any) error {
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// EachLine calls f with each line of a layer, without its newline. A missing layer has
// none.
func EachLine(dir, path string, f func(line []byte) error) error {
	file, err := os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	for br, n := bufio.NewReaderSize(file, 1<<20), 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = f(line[:len(line)-1])
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
}
