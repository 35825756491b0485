package query

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-json-experiment/json/v1"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// within adds a subject's own values to those of a run.
type within struct {
	Run
	own map[string]any
}

func (w within) ResolveName(name string) (any, bool) {
	if v, ok := w.own[name]; ok {
		return v, true
	}
	return w.Run.ResolveName(name)
}

// ofProcess returns the values for a process.
func ofProcess(run Run, t *facts.Table, p *facts.Process) interpreter.Activation {
	seconds, parent := -1.0, ""
	if p.Ended {
		seconds = float64(p.EndNS-p.StartNS) / 1e9
	}
	if p.Parent >= 0 {
		parent = t.All[p.Parent].Exe
	}
	return within{run, map[string]any{
		"pid": int64(p.PID), "ppid": int64(p.PPID), "exe": p.Exe, "argv": list(p.Argv),
		"command": strings.Join(p.Argv, " "), "cwd": p.Cwd,
		"parent_exe": parent, "execs": int64(p.Execs), "start": float64(p.StartNS) / 1e9, "seconds": seconds,
		"exit_code": int64(p.ExitCode), "signal": p.Signal,
	}}
}

// ofCall returns the values for a tool call.
func ofCall(run Run, r *schema.CorrelationReport, c *schema.Binding) interpreter.Activation {
	start, seconds := -1.0, -1.0
	if c.TStartNS != nil {
		start = float64(*c.TStartNS) / 1e9
		if c.TEndNS != nil {
			seconds = float64(*c.TEndNS-*c.TStartNS) / 1e9
		}
	}
	unobserved := ""
	for _, u := range r.ReportedNotObserved {
		if u.ToolCallID == c.ToolCallID {
			unobserved = u.Code
		}
	}
	beyond := slices.ContainsFunc(r.ObservedNotReported, func(u schema.Unreported) bool {
		return (u.Code == "beyond_claim" || u.Code == "denied_call" || u.Code == "unknown_call") &&
			slices.Contains(u.ToolCallIDs, c.ToolCallID)
	})
	seq := int64(-1)
	if c.ModelSeq != nil {
		seq = int64(*c.ModelSeq)
	}
	return within{run, map[string]any{
		"model_seq": seq, "matched_by": c.MatchedBy,
		"id": c.ToolCallID, "tool": c.Tool, "decision": c.PolicyDecision, "method": c.Method,
		"events": int64(c.KernelEventCount), "start": start, "seconds": seconds,
		"files": list(c.Files), "written": list(c.Written), "hosts": list(c.Hosts), "commands": list(c.Commands),
		"beyond": beyond, "unobserved": unobserved,
	}}
}

// ofTurn returns the values for a turn.
func ofTurn(run Run, t *schema.Turn) interpreter.Activation {
	rule := ""
	if t.PolicyRejected != nil {
		rule = t.PolicyRejected.Rule
	}
	return within{run, map[string]any{
		"id": t.ToolCallID, "tool": t.Tool, "params": anything(t.Parameters), "output": anything(t.Output),
		"verdict":     t.VerifierVerdict,
		"rejected_by": t.RejectedBy, "rule": rule, "error": t.Error, "source": t.Source,
		"start": float64(t.TStartNS) / 1e9, "seconds": float64(t.TEndNS-t.TStartNS) / 1e9,
	}}
}

// anything decodes any JSON value. An empty one is null.
func anything(raw jsontext.Value) any {
	var v any
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return types.NullValue
	}
	return v
}
