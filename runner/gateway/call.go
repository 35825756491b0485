package gateway

import (
	"context"
	"math"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Steps that reject an action, and the rules they are named after in a turn.
const (
	byTool       = "tool"
	bySchema     = "schema"
	byCapability = "capability"
	byPolicy     = "policy"
	byRateLimit  = "rate_limit"

	gatewayRule = "gateway."
)

// call is one action on its way. However it goes, record writes its one call
// event and, when it is to be one, its turn.
type call struct {
	*submission
	action *action
	tool   *tool

	began    time.Duration // on the gateway's clock
	id       string
	granted  []string
	outcome  schema.CallOutcome
	by       string // the step that rejected
	rule     string
	param    string
	found    []policy.Violation
	output   jsontext.Value
	toolErr  jsontext.Value
	decided  bool  // a policy looked at it
	broken   error // of recording the decision
	finished time.Duration
}

// toolsExecute are the parameters of our tools.execute.
type toolsExecute struct {
	ActionID   string         `json:"action_id"`
	Tool       string         `json:"tool"`
	Parameters jsontext.Value `json:"parameters"`
	ToolCallID string         `json:"tool_call_id"`
}

// begin takes the call to its end, or to where its tool runs: then it is not
// over, and resume gets the answer.
func (c *call) begin(ctx context.Context, resume func(answer)) (over bool) {
	c.began = c.conn.g.cfg.Now()
	c.id = newCallID()
	if c.action.ToolCallID == "" {
		c.action.ToolCallID = c.id
	}
	allowed := c.check()
	c.broken = c.recordDecision() // before the tool runs
	switch {
	case !allowed:
		return true
	case c.broken != nil:
		c.outcome = failedWith(schema.FailCancelled, true)
	case c.params.DryRun:
		c.outcome = schema.CallOutcome{Kind: schema.CallSuccess}
	case ctx.Err() != nil:
		c.outcome = failedWith(schema.FailCancelled, true)
	case c.dispatch(ctx, resume):
		return false
	default:
		c.outcome = failedWith(schema.FailCallbackLost, true)
	}
	c.tool.end()
	return true
}

// end records the call. The error is one of recording.
func (c *call) end(res *actionResult) error {
	c.finished = c.conn.g.cfg.Now()
	err := c.record()
	*res = actionResult{
		ID: c.action.ID, Tool: c.action.Tool, ToolCallID: c.action.ToolCallID, CallID: c.id,
		Outcome: c.outcome, RejectedBy: c.by, Output: c.output, Error: c.toolErr,
		Violations: c.found, DryRun: c.params.DryRun, Recorded: c.turns,
	}
	if c.broken != nil {
		return c.broken
	}
	return err
}

func failedWith(code string, retryable bool) schema.CallOutcome {
	return schema.CallOutcome{Kind: schema.CallExecutionFailed, Code: code, Retryable: &retryable}
}

// check takes the call through every step before dispatch, and tells whether
// it may be dispatched: it then holds one of the tool's places.
func (c *call) check() bool {
	reject := func(by, param string, o schema.CallOutcome) bool {
		c.by, c.param, c.outcome = by, param, o
		if c.rule == "" {
			c.rule = gatewayRule + by
		}
		return false
	}
	now := c.began
	if c.busy {
		soon := int64(100)
		return reject(byRateLimit, "", schema.CallOutcome{Kind: schema.CallRateLimited, RetryAfterMS: &soon})
	}
	if d := c.action.Denied; d != nil {
		c.decided, c.rule = true, d.Rule
		return reject(byPolicy, d.Param, schema.CallOutcome{Kind: schema.CallPolicyDenied, Rule: d.Rule})
	}
	if c.tool = c.conn.toolNamed(c.action.Tool); c.tool == nil {
		return reject(byTool, "", schema.CallOutcome{Kind: schema.CallToolNotFound})
	}
	if c.tool.schema != nil {
		if problem, ok := c.tool.schema.check(c.action.Parameters); !ok {
			return reject(bySchema, "", schema.CallOutcome{Kind: schema.CallInvalidArgs, Message: problem})
		}
	}
	granted, missing := c.grant(c.tool)
	c.granted = granted
	if len(missing) > 0 {
		return reject(byCapability, "", schema.CallOutcome{Kind: schema.CallCapabilityDenied, Missing: missing})
	}
	c.decided = true
	for _, s := range c.scopes {
		c.found = append(c.found, s.rules.Check(&policy.Call{
			Tool: c.action.Tool, Params: c.action.Parameters, State: s.get, Now: now, DryRun: c.params.DryRun,
		})...)
	}
	if len(c.found) > 0 {
		first := c.found[0]
		c.rule = first.Rule
		return reject(byPolicy, first.Param, schema.CallOutcome{Kind: schema.CallPolicyDenied, Rule: first.Rule})
	}
	if c.tool.rate != nil {
		if wait, ok := c.tool.rate.Take(now, c.params.DryRun); !ok {
			ms := int64(math.Ceil(float64(wait) / float64(time.Millisecond)))
			return reject(byRateLimit, "", schema.CallOutcome{Kind: schema.CallRateLimited, RetryAfterMS: &ms})
		}
	}
	if !c.tool.begin() {
		return reject(byRateLimit, "", schema.CallOutcome{Kind: schema.CallRateLimited})
	}
	return true
}

// dispatch asks the client to run the tool. False: it is gone.
func (c *call) dispatch(ctx context.Context, resume func(answer)) bool {
	ended := func() {}
	if o := c.observer(); o != nil {
		o.CallStarted(c.action.ToolCallID, c.action.Tool)
		ended = func() { o.CallEnded(c.action.ToolCallID) }
	}
	return c.conn.call(ctx, "tools.execute", &toolsExecute{
		ActionID: c.action.ID, Tool: c.action.Tool, Parameters: c.action.Parameters, ToolCallID: c.action.ToolCallID,
	}, c.tool.deadline, ended, resume)
}

// answered takes what became of the tool, and gives its place back.
func (c *call) answered(a answer) {
	c.tool.end()
	c.output, c.toolErr = a.result, a.err
	switch {
	case a.failed != "":
		c.outcome = failedWith(a.failed, true)
	case a.err != nil:
		c.outcome = failedWith(schema.FailToolError, false)
	default:
		c.outcome = schema.CallOutcome{Kind: schema.CallSuccess}
	}
	if a.failed != schema.FailDeadline && a.failed != schema.FailCancelled {
		return
	}
	// The client may want to stop; it need not answer.
	msg, err := appendRequest(nil, 0, "tools.cancel", map[string]string{
		"action_id": c.action.ID, "tool_call_id": c.action.ToolCallID, "reason": a.failed,
	})
	if err == nil {
		c.conn.send(msg)
	}
}

// observer is who is told of the run's own calls, if anybody is.
func (c *call) observer() Observer {
	if c.rec == nil {
		return nil
	}
	return c.conn.g.cfg.Observer
}

// record writes the call's turn and its call event. The event is written also
// when the turn could not be.
func (c *call) record() error {
	verdict := schema.VerdictNotRun
	var turnErr error
	if c.rec != nil {
		t := c.turn()
		verdict = t.VerifierVerdict
		if c.turns {
			c.rec.blobs.trim(&t)
			if _, turnErr = c.rec.record([]schema.TurnBody{t}); turnErr == nil {
				c.conn.g.count.add(func(m *Metrics) { m.Turns++ })
			}
		}
	}
	if !c.params.DryRun {
		for _, s := range c.scopes {
			s.ended(c.action.Tool, &c.outcome, verdict)
		}
	}
	tier := schema.DefaultTier
	if c.tool != nil {
		tier = c.tool.tier
	}
	err := c.conn.g.audit(c.rec, &schema.CallEventBody{
		CallID: c.id, ToolID: c.action.Tool, ToolCallID: c.action.ToolCallID, CallerID: c.params.Proposal.Source,
		GrantedCapabilities: c.granted, DurationMS: float64((c.finished - c.began).Microseconds()) / 1000,
		Outcome: c.outcome, Tier: tier, DryRun: c.params.DryRun,
	})
	if turnErr != nil {
		return turnErr
	}
	return err
}

// turn is the call as a turn.
func (c *call) turn() schema.TurnBody {
	t := schema.TurnBody{
		Tool: c.action.Tool, Parameters: rawValue(c.action.Parameters), VerifierVerdict: schema.VerdictNotRun,
		DryRun: c.params.DryRun, Source: "gateway", ActionID: c.action.ID, ToolCallID: c.action.ToolCallID,
		TStartNS: int64(c.began - c.rec.zero), TEndNS: int64(c.finished - c.rec.zero),
	}
	if c.action.Denied != nil {
		t.Source = "reported"
	}
	turns := &c.conn.g.cfg.Turns
	if c.action.Tool == turns.CLITool {
		t.Prompt = textMember(c.action.Parameters, "prompt")
	}
	switch {
	case c.by != "":
		t.RejectedBy = c.by
		t.PolicyRejected = &schema.PolicyRejected{Rule: c.rule, Param: c.param}
	case c.outcome.Kind == schema.CallExecutionFailed:
		t.Error = c.outcome.Code
	case !c.params.DryRun:
		t.Output = rawValue(c.output)
		switch c.action.Tool {
		case turns.CLITool:
			t.CLIOutcome = cliOutcome(c.output)
		case turns.CheckTool:
			t.VerifierVerdict = checkVerdict(c.output)
		}
	}
	return t
}
