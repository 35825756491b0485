package gateway

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// maxIdentifier bounds the identifiers that clients choose, in bytes.
const maxIdentifier = 256

// proposalParams are the parameters of proposal.submit.
type proposalParams struct {
	// RunID is for a client that did not start or join the run itself.
	RunID    string    `json:"run_id"`
	Proposal *proposal `json:"proposal"`
	// DryRun checks the actions and dispatches none.
	DryRun bool `json:"dry_run"`
}

type proposal struct {
	ID      string   `json:"id"`
	Source  string   `json:"source"`
	Actions []action `json:"actions"`
	// Capabilities, when there, narrow those that tools are granted.
	Capabilities *[]string `json:"capabilities"`
}

type action struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Tool       string         `json:"tool"`
	Parameters jsontext.Value `json:"parameters"`
	// ToolCallID is the SDK's name for the call; the gateway makes one up for
	// an action without.
	ToolCallID string `json:"tool_call_id"`
	// Denied, when there, says that the client's own policy denied the call: it
	// goes on record and no further.
	Denied *schema.PolicyRejected `json:"denied"`
}

// proposalResult is the answer to proposal.submit.
type proposalResult struct {
	ID      string         `json:"id"`
	RunID   string         `json:"run_id,omitempty"`
	Actions []actionResult `json:"actions"`
}

// actionResult is what came of one action.
type actionResult struct {
	ID         string             `json:"id"`
	Tool       string             `json:"tool"`
	ToolCallID string             `json:"tool_call_id"`
	CallID     string             `json:"call_id"`
	Outcome    schema.CallOutcome `json:"outcome"`
	RejectedBy string             `json:"rejected_by,omitempty"`
	Output     jsontext.Value     `json:"output,omitzero"`
	// Error is the client's own error, verbatim, when its tool failed.
	Error      jsontext.Value     `json:"error,omitzero"`
	Violations []policy.Violation `json:"violations,omitempty"`
	DryRun     bool               `json:"dry_run,omitzero"`
	// Recorded tells whether the call became a turn.
	Recorded bool `json:"recorded"`
}

// submit handles proposal.submit. Its calls belong to the recording that is
// open now, whatever the client sends next.
func (c *conn) submit(r *request) {
	c.mu.Lock()
	rec := c.rec
	c.mu.Unlock()
	s := &submission{conn: c, request: r, rec: rec}
	s.turns = rec != nil && rec.enter()
	s.job = &job{request: r, begin: s.begin}
	if !c.async(s.job) {
		// Too much at once. The answer is written right here, so that a
		// client that floods is slowed down and no call goes unaudited.
		s.busy = true
		s.begin(c.ctx)
	}
}

// begin takes the proposal as far as it goes, and tells whether it is done.
func (s *submission) begin(ctx context.Context) (done bool) {
	s.ctx = ctx
	if err := s.open(); err != nil {
		s.reply(nil, err)
		return true
	}
	return s.advance()
}

// open decodes the proposal, and finds where its calls are recorded.
func (s *submission) open() *rpcError {
	c := s.conn
	if err := decodeParams(s.request.params, &s.params); err != nil {
		return err
	}
	if err := s.params.check(&c.g.limits); err != nil {
		return err
	}
	if id := s.params.RunID; id != "" && (s.rec == nil || s.rec.id != id) {
		named, err := c.recordingFor(id)
		if err != nil {
			return err
		}
		if s.turns {
			s.rec.exit()
		}
		s.rec, s.turns = named, named.enter()
	}
	s.scopes = []*scope{c.scopeNow()}
	if s.rec != nil && s.rec.scope != s.scopes[0] {
		s.scopes = append(s.scopes, s.rec.scope)
	}
	if !s.turns && c.g.run == nil {
		s.rec = nil // it has been sealed
	}
	if s.rec != nil {
		if broken := s.rec.failure(); broken != nil {
			return errorf(codeNotRecorded, "nothing was called: the run cannot be recorded any more: %s", brief(broken))
		}
	}
	p := s.params.Proposal
	s.result = proposalResult{ID: p.ID, Actions: make([]actionResult, len(p.Actions))}
	if s.rec != nil {
		s.result.RunID = s.rec.id
	}
	return nil
}

// reply answers, when all that it tells is on record.
func (s *submission) reply(result any, err *rpcError) {
	if s.turns {
		s.rec.exit()
	}
	if !s.busy {
		s.conn.free(s.job)
	}
	s.request.done(result, err)
}

func (p *proposalParams) check(l *Limits) *rpcError {
	if p.Proposal == nil {
		return errorf(codeInvalidParams, "params/proposal is missing")
	}
	pr := p.Proposal
	switch {
	case len(pr.ID) > maxIdentifier || len(pr.Source) > maxIdentifier:
		return errorf(codeInvalidParams, "params/proposal: id and source have at most %d bytes", maxIdentifier)
	case len(pr.Actions) == 0 || len(pr.Actions) > l.Actions:
		return errorf(codeInvalidParams, "params/proposal/actions: 1 to %d actions, found %d", l.Actions, len(pr.Actions))
	case pr.Capabilities != nil && len(*pr.Capabilities) > maxCapabilities:
		return errorf(codeInvalidParams, "params/proposal/capabilities: at most %d", maxCapabilities)
	}
	seen := make(map[string]bool, len(pr.Actions))
	for i := range pr.Actions {
		a := &pr.Actions[i]
		switch {
		case a.ID == "" || len(a.ID) > maxIdentifier || len(a.ToolCallID) > agentlog.MaxID:
			return errorf(codeInvalidParams, "params/proposal/actions/%d: an id has 1 to %d bytes, a tool_call_id at most %d", i, maxIdentifier, agentlog.MaxID)
		case seen[a.ID]:
			return errorf(codeInvalidParams, "params/proposal/actions/%d: the id is that of an action before", i)
		case a.Type != "tool_call":
			return errorf(codeInvalidParams, `params/proposal/actions/%d/type: must be "tool_call"`, i)
		case a.Tool == "" || len(a.Tool) > maxToolName:
			return errorf(codeInvalidParams, "params/proposal/actions/%d/tool: a tool's name has 1 to %d bytes", i, maxToolName)
		case a.Denied != nil && !named(a.Denied):
			return errorf(codeInvalidParams, "params/proposal/actions/%d/denied: a rule of 1 to %d bytes, and a param of at most so many", i, maxToolName)
		case a.Denied != nil && pr.Source == agentlog.GatewaySource:
			return errorf(codeInvalidParams, "params/proposal/actions/%d/denied: not by %s, the proposal's source", i, pr.Source)
		}
		seen[a.ID] = true
		if a.Parameters == nil || a.Parameters.Kind() == 'n' {
			a.Parameters = jsontext.Value("{}")
		}
	}
	return nil
}

// named tells whether a client's rejection names its rule.
func named(p *schema.PolicyRejected) bool {
	return p.Rule != "" && len(p.Rule) <= maxToolName && len(p.Param) <= maxToolName
}

// submission is a proposal on its way. Its actions run one after another, and
// wherever the answer to the one before was read.
type submission struct {
	conn    *conn
	request *request
	job     *job
	ctx     context.Context
	params  proposalParams
	rec     *recording // nil when there is none (in serve)
	scopes  []*scope   // whose rules apply
	turns   bool       // the calls are turns of rec, which waits for them
	busy    bool       // reject everything: too much at once
	result  proposalResult
	next    int // action
}

// advance takes the actions to their end, until one waits for its tool. It tells
// whether all are done and answered.
func (s *submission) advance() (done bool) {
	for s.next < len(s.params.Proposal.Actions) {
		c := &call{submission: s, action: &s.params.Proposal.Actions[s.next]}
		if !c.begin(s.ctx, func(a answer) { s.resume(c, a) }) {
			return false
		}
		if !s.over(c) {
			return true
		}
	}
	s.reply(&s.result, nil)
	return true
}

// over ends a call. False: it could not be recorded, and nothing more is called
// that could not be either.
func (s *submission) over(c *call) bool {
	err := c.end(&s.result.Actions[s.next])
	s.next++
	if err != nil {
		s.reply(nil, errorf(codeNotRecorded, "a call could not be recorded: %s", brief(err)))
	}
	return err == nil
}

// resume goes on with the answer to a call.
func (s *submission) resume(c *call, a answer) {
	c.answered(a)
	if s.over(c) && !s.advance() {
		return
	}
	s.conn.resumed(s.job)
}

// grant is the capabilities that a tool gets, sorted, and those it lacks.
func (s *submission) grant(t *tool) (granted, missing []string) {
	granted = []string{}
	for _, name := range t.caps {
		ok := s.scopes[0].rules.Granted(name)
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

func newCallID() string { return ulid.Make().String() }
