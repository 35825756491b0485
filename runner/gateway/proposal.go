package gateway

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// maxIdentifier limits the identifiers that clients choose, in bytes.
const maxIdentifier = 256

// proposalParams are the parameters of proposal.submit.
type proposalParams struct {
	// RunID is for a client that has not started or joined the run.
	RunID    string    `json:"run_id"`
	Proposal *proposal `json:"proposal"`
	// DryRun checks the actions and dispatches none.
	DryRun bool `json:"dry_run"`
}

type proposal struct {
	ID      string   `json:"id"`
	Source  string   `json:"source"`
	Actions []action `json:"actions"`
	// Capabilities, if set, restrict the capabilities that tools get.
	Capabilities *[]string `json:"capabilities"`
}

type action struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Tool       string         `json:"tool"`
	Parameters jsontext.Value `json:"parameters"`
	// ToolCallID is the SDK's id of the call. The gateway makes one for an action without.
	ToolCallID string `json:"tool_call_id"`
	// Denied, if set, means that the client's own policy denied the call. The gateway records the call and does not
	// dispatch it.
	Denied *schema.PolicyRejected `json:"denied"`
	// Allowed means that the client's own policy allowed the call. Logged means that its decision is in the run's
	// decision log, so it is not recorded again.
	Allowed bool `json:"allowed"`
	Logged  bool `json:"logged"`
}

// decision is the decision of the client's own policy; "" if it has none.
func (a *action) decision() string {
	switch {
	case a.Denied != nil:
		return "deny"
	case a.Allowed:
		return "allow"
	}
	return ""
}

// proposalResult is the result of proposal.submit.
type proposalResult struct {
	ID      string         `json:"id"`
	RunID   string         `json:"run_id,omitempty"`
	Actions []actionResult `json:"actions"`
}

// actionResult is the result of one action.
type actionResult struct {
	ID         string             `json:"id"`
	Tool       string             `json:"tool"`
	ToolCallID string             `json:"tool_call_id"`
	CallID     string             `json:"call_id"`
	Outcome    schema.CallOutcome `json:"outcome"`
	RejectedBy string             `json:"rejected_by,omitempty"`
	Output     jsontext.Value     `json:"output,omitzero"`
	// Error is the client's own error, verbatim, if its tool failed.
	Error      jsontext.Value     `json:"error,omitzero"`
	Violations []policy.Violation `json:"violations,omitempty"`
	DryRun     bool               `json:"dry_run,omitzero"`
	// Recorded reports whether the call became a turn.
	Recorded bool `json:"recorded"`
}

// submission is a proposal in progress. Its actions run one after another.
type submission struct {
	*client
	request *rpc.Request
	params  proposalParams
	run     *recording.Run // nil if there is none (in serve)
	turns   bool           // the calls are turns of run, which waits for them
	rules   []*policy.Set  // that apply
	state   *policy.State
	busy    bool // reject everything: too many requests
}

// execute handles the proposal, from its parameters to its answer. The answer reports only what is recorded.
func (s *submission) execute(ctx context.Context) (any, *jsonrpc.Error) {
	defer func() {
		if s.turns {
			s.run.Leave()
		}
	}()
	if err := s.request.Decode(&s.params); err != nil {
		return nil, err
	}
	if err := s.params.check(&s.g.cfg.Limits); err != nil {
		return nil, err
	}
	if err := s.place(); err != nil {
		return nil, err
	}
	p := s.params.Proposal
	result := &proposalResult{ID: p.ID, Actions: make([]actionResult, len(p.Actions))}
	if s.run != nil {
		result.RunID = s.run.ID
	}
	for i := range p.Actions {
		c := &call{submission: s, action: &p.Actions[i]}
		c.execute(ctx)
		if err := c.record(); err != nil {
			// Later calls could not be recorded either, so they are not made.
			return nil, jsonrpc.Errorf(codeNotRecorded, "a call could not be recorded: %s", jsonrpc.Brief(err))
		}
		result.Actions[i] = c.result()
	}
	return result, nil
}

// place finds the run that the calls belong to, and the rules and the state that apply to them.
func (s *submission) place() *jsonrpc.Error {
	if id := s.params.RunID; id != "" && (s.run == nil || s.run.ID != id) {
		named, err := s.runFor(id, false)
		if err != nil {
			return err
		}
		if s.turns {
			s.run.Leave()
		}
		s.run, s.turns = named, named.Enter()
	}
	own := s.client.rulesNow()
	s.rules, s.state = []*policy.Set{own}, s.client.state
	if s.run != nil {
		s.state = s.run.State
		if s.run.Rules != own {
			s.rules = append(s.rules, s.run.Rules)
		}
	}
	if s.g.run == nil {
		// In serve, a call outside a run would be in no bundle.
		switch {
		case s.run == nil:
			return jsonrpc.Errorf(codeNoRun,
				"nothing was called: no run is open on this connection: open one with runs.start, or "+
					"name one with run_id")
		case !s.turns:
			return jsonrpc.Errorf(codeRunState, "nothing was called: run %s is not open, it is %s", s.run.ID,
				s.run.Info().State)
		}
	}
	if s.run != nil {
		if broken := s.run.Failure(); broken != nil {
			return jsonrpc.Errorf(codeNotRecorded, "nothing was called: the run can no longer be recorded: %s",
				jsonrpc.Brief(broken))
		}
	}
	return nil
}

func (p *proposalParams) check(l *Limits) *jsonrpc.Error {
	if p.Proposal == nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/proposal is missing")
	}
	pr := p.Proposal
	switch {
	case len(pr.ID) > maxIdentifier || len(pr.Source) > maxIdentifier:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/proposal: id and source must have at most %d bytes",
			maxIdentifier)
	case len(pr.Actions) == 0 || len(pr.Actions) > l.Actions:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/proposal/actions: must have 1 to %d actions, found %d",
			l.Actions, len(pr.Actions))
	case pr.Capabilities != nil && len(*pr.Capabilities) > maxCapabilities:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/proposal/capabilities: must have at most %d",
			maxCapabilities)
	}
	seen := make(map[string]bool, len(pr.Actions))
	for i := range pr.Actions {
		a := &pr.Actions[i]
		switch {
		case a.ID == "" || len(a.ID) > maxIdentifier || len(a.ToolCallID) > agentlog.MaxID:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
				"params/proposal/actions/%d: id must have 1 to %d bytes, tool_call_id at most %d", i, maxIdentifier,
				agentlog.MaxID)
		case seen[a.ID]:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
				"params/proposal/actions/%d: an earlier action has the same id", i)
		case a.Type != "tool_call":
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, `params/proposal/actions/%d/type: must be "tool_call"`, i)
		case a.Tool == "" || len(a.Tool) > policyfile.MaxName:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params/proposal/actions/%d/tool: must have 1 to %d bytes",
				i, policyfile.MaxName)
		case a.Denied != nil && !named(a.Denied):
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
				"params/proposal/actions/%d/denied: rule must have 1 to %d bytes, param at most as many", i,
				policyfile.MaxName)
		case a.Denied != nil && a.Allowed:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
				"params/proposal/actions/%d: it is both allowed and denied", i)
		case a.decision() != "" && pr.Source == agentlog.GatewaySource:
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
				"params/proposal/actions/%d: the source %s is the gateway's own name, and its decisions are its own", i,
				pr.Source)
		}
		seen[a.ID] = true
		if a.Parameters == nil || a.Parameters.Kind() == 'n' {
			a.Parameters = jsontext.Value("{}")
		}
	}
	return nil
}

// named reports whether a client's rejection names its rule.
func named(p *schema.PolicyRejected) bool {
	return p.Rule != "" && len(p.Rule) <= policyfile.MaxName && len(p.Param) <= policyfile.MaxName
}

// grant returns the capabilities that a tool gets, sorted, and those it lacks.
func (s *submission) grant(t *tool) (granted, missing []string) {
	granted = []string{}
	for _, name := range t.caps {
		ok := s.rules[0].Granted(name)
		if narrowed := s.params.Proposal.Capabilities; narrowed != nil && !slices.Contains(*narrowed, name) {
			ok = false
		}
		if ok {
			granted = append(granted, name)
		} else {
			missing = append(missing, name)
		}
	}
	return granted, missing
}
