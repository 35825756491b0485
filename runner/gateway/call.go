package gateway

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Steps that reject an action, and the rule names that a turn gives them.
const (
	byTool       = "tool"
	bySchema     = "schema"
	byCapability = "capability"
	byPolicy     = "policy"
	byRateLimit  = "rate_limit"

	gatewayRule = "gateway."
)

// call is one action in progress. However it ends, record writes one call event for it and, if it belongs to the run,
// a turn.
type call struct {
	*submission
	action *action
	tool   *tool

	began    time.Duration // on the gateway's clock
	id       string
	granted  []string
	outcome  schema.CallOutcome
	by       string // the step that rejected the call
	rule     string
	param    string
	found    []policy.Violation
	output   jsontext.Value
	toolErr  jsontext.Value
	checked  bool  // the policy was asked
	broken   error // why the decision could not be recorded
	finished time.Duration
}

// toolsExecute are the parameters of the gateway's tools.execute request.
type toolsExecute struct {
	ActionID   string         `json:"action_id"`
	Tool       string         `json:"tool"`
	Parameters jsontext.Value `json:"parameters"`
	ToolCallID string         `json:"tool_call_id"`
}

// execute checks the call, records the decision, and has the client run the tool.
func (c *call) execute(ctx context.Context) {
	c.began = c.g.cfg.Now()
	c.id = schema.NewID()
	if c.action.ToolCallID == "" {
		c.action.ToolCallID = c.id
	}
	allowed := c.check()
	c.broken = c.recordDecisions()
	if allowed {
		defer c.tool.end()
		switch {
		case c.broken != nil || ctx.Err() != nil:
			c.outcome = failedWith(schema.FailCancelled, true)
		case c.params.DryRun:
			c.outcome = schema.CallOutcome{Kind: schema.CallSuccess}
		default:
			c.dispatch(ctx)
		}
	}
	c.finished = c.g.cfg.Now()
}

func (c *call) result() actionResult {
	return actionResult{
		ID: c.action.ID, Tool: c.action.Tool, ToolCallID: c.action.ToolCallID, CallID: c.id,
		Outcome: c.outcome, RejectedBy: c.by, Output: c.output, Error: c.toolErr,
		Violations: c.found, DryRun: c.params.DryRun, Recorded: c.turns,
	}
}

func failedWith(code string, retryable bool) schema.CallOutcome {
	return schema.CallOutcome{Kind: schema.CallExecutionFailed, Code: code, Retryable: &retryable}
}

// check does every step before dispatch and reports whether the call may be dispatched. If so, the call occupies one
// of the tool's places.
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
		return reject(byRateLimit, "",
			schema.CallOutcome{Kind: schema.CallRateLimited, RetryAfterMS: schema.Some[int64](100)})
	}
	if d := c.action.Denied; d != nil {
		c.rule = d.Rule
		return reject(byPolicy, d.Param, schema.CallOutcome{Kind: schema.CallPolicyDenied, Rule: d.Rule})
	}
	if c.tool = c.toolNamed(c.action.Tool); c.tool == nil {
		return reject(byTool, "", schema.CallOutcome{Kind: schema.CallToolNotFound})
	}
	if c.tool.schema != nil {
		if problem, ok := c.tool.schema.Check(c.action.Parameters); !ok {
			return reject(bySchema, "", schema.CallOutcome{Kind: schema.CallInvalidArgs, Message: problem})
		}
	}
	granted, missing := c.grant(c.tool)
	c.granted = granted
	if len(missing) > 0 {
		return reject(byCapability, "", schema.CallOutcome{Kind: schema.CallCapabilityDenied, Missing: missing})
	}
	c.checked = true
	var limited *schema.CallOutcome
	c.found = c.state.Decide(&policy.Call{
		Tool: c.action.Tool, Params: c.action.Parameters, Now: now, DryRun: c.params.DryRun,
	}, c.rules, func() bool {
		limited = c.tool.take(now, c.params.DryRun, c.g.rates.shared(c.run, c.tool))
		return limited == nil
	})
	if len(c.found) > 0 {
		first := c.found[0]
		c.rule = first.Rule
		return reject(byPolicy, first.Param, schema.CallOutcome{Kind: schema.CallPolicyDenied, Rule: first.Rule})
	}
	if limited != nil {
		return reject(byRateLimit, "", *limited)
	}
	return true
}

// failures maps why a client did not answer a call to the call's code.
var failures = map[error]string{
	rpc.ErrGone: schema.FailCallbackLost, rpc.ErrDeadline: schema.FailDeadline, rpc.ErrCancelled: schema.FailCancelled,
}

// dispatch asks the client to run the tool, and waits for the result.
func (c *call) dispatch(ctx context.Context) {
	ended := func() {}
	if o := c.observer(); o != nil {
		o.CallStarted(c.action.ToolCallID, c.action.Tool, c.tree.Load())
		ended = func() { o.CallEnded(c.action.ToolCallID) }
	}
	a := c.request.Call(ctx, "tools.execute", &toolsExecute{
		ActionID: c.action.ID, Tool: c.action.Tool, Parameters: c.action.Parameters, ToolCallID: c.action.ToolCallID,
	}, c.tool.deadline, ended)
	c.output, c.toolErr = a.Result, a.Error
	switch {
	case a.Err != nil:
		c.outcome = failedWith(failures[a.Err], true)
	case a.Error != nil:
		c.outcome = toolFailure(a.Error)
	case saysFailed(a.Result):
		c.outcome = toolFailure(a.Result)
	default:
		c.outcome = schema.CallOutcome{Kind: schema.CallSuccess}
	}
	if a.Err == rpc.ErrDeadline || a.Err == rpc.ErrCancelled {
		// The client may want to stop; it need not answer.
		c.conn.Notify("tools.cancel", map[string]string{
			"action_id": c.action.ID, "tool_call_id": c.action.ToolCallID, "reason": c.outcome.Code,
		})
	}
}

// observer gets the events of the run's calls; it may be nil.
func (c *call) observer() Observer {
	if c.run == nil {
		return nil
	}
	return c.g.observer(c.run)
}

// record writes the call's turn and its call event. It writes the event even if the
// turn could not be written. It returns the first error in recording the call.
func (c *call) record() error {
	verdict := schema.VerdictNotRun
	var turnErr error
	if c.run != nil {
		t := c.turn()
		verdict = t.VerifierVerdict
		if c.turns {
			if _, turnErr = c.run.Record([]schema.TurnBody{t}); turnErr == nil {
				c.g.count.add(func(m *Metrics) { m.Turns++ })
			}
		}
	}
	if !c.params.DryRun {
		c.state.Ended(c.action.Tool, &c.outcome, verdict)
	}
	tier := schema.DefaultTier
	if c.tool != nil {
		tier = c.tool.tier
	}
	err := c.g.audit(c.run, &schema.CallEventBody{
		CallID: c.id, ToolID: c.action.Tool, ToolCallID: c.action.ToolCallID, CallerID: c.params.Proposal.Source,
		GrantedCapabilities: c.granted, DurationMS: (c.finished - c.began).Milliseconds(),
		DurationUS: (c.finished - c.began).Microseconds(),
		CursorPage: c.pages(),
		Outcome:    c.outcome, Tier: tier, DryRun: c.params.DryRun,
	})
	return cmp.Or(c.broken, turnErr, err)
}

// turn returns the call as a turn.
func (c *call) turn() schema.TurnBody {
	t := schema.TurnBody{
		Tool: c.action.Tool, Parameters: c.action.Parameters, VerifierVerdict: schema.VerdictNotRun,
		DryRun: c.params.DryRun, Source: "gateway", ActionID: c.action.ID, ToolCallID: c.action.ToolCallID,
		ClientID: c.params.Proposal.Source, ProposalID: c.params.Proposal.ID,
		TStartNS: int64(c.began - c.run.Zero), TEndNS: int64(c.finished - c.run.Zero),
	}
	if c.action.Denied != nil {
		t.Source = "reported"
	}
	turns := &c.g.cfg.Turns
	if c.action.Tool == turns.CLITool {
		t.Prompt = textMember(c.action.Parameters, "prompt")
	}
	switch {
	case c.by != "":
		t.RejectedBy = c.by
		t.PolicyRejected = &schema.PolicyRejected{Rule: c.rule, Param: c.param}
	case c.outcome.Kind == schema.CallExecutionFailed:
		t.Error, t.Output = c.outcome.Code, c.output
		if recording.IsLeftOut(c.toolErr) {
			t.Output = c.toolErr
		}
	case !c.params.DryRun:
		t.Output = c.output
		switch c.action.Tool {
		case turns.CLITool:
			t.CLIOutcome = cliOutcome(c.output)
		case turns.CheckTool:
			t.VerifierVerdict = checkVerdict(c.output)
		}
	}
	return t
}

// recordDecisions writes a line of the policy layer for each decision about the call, before the call is dispatched:
// the client's, unless a log that the run reads has it, and the gateway's.
func (c *call) recordDecisions() error {
	if c.run == nil {
		return nil
	}
	var clients, own error
	if d := c.action.decision(); d != "" && !c.action.Logged {
		rule := ""
		if c.action.Denied != nil {
			rule = c.action.Denied.Rule
		}
		clients = c.recordDecision(c.params.Proposal.Source, d, rule)
	}
	switch {
	case !c.checked:
	case !c.decides():
		c.tell("")
	case c.by == byPolicy:
		own = c.recordDecision(agentlog.GatewaySource, "deny", c.rule)
	default:
		own = c.recordDecision(agentlog.GatewaySource, "allow", "")
	}
	return cmp.Or(clients, own)
}

// decides reports whether the gateway decides: it has a policy, or the client has none.
func (c *call) decides() bool {
	return c.action.decision() == "" || slices.ContainsFunc(c.rules, (*policy.Set).Decides)
}

// recordDecision records a decision.
func (c *call) recordDecision(source, decision, rule string) error {
	c.tell(decision)
	body, err := json.Marshal(&policyEvent{
		SourceEventType: agentlog.DecisionType, Source: source, ToolCallID: c.action.ToolCallID, Tool: c.action.Tool,
		Decision: decision, TNS: int64(c.g.cfg.Now() - c.run.Zero), Rule: rule,
	})
	if err != nil {
		return err
	}
	return c.run.Decision(body)
}

// tell passes a decision to the observer.
func (c *call) tell(decision string) {
	if o := c.observer(); o != nil {
		o.CallDecided(c.action.ToolCallID, c.action.Tool, decision)
		o.CallArguments(c.action.ToolCallID, c.action.Parameters)
	}
}

// policyEvent is a [schema.PolicyEvent] without the fields that the recorder sets.
type policyEvent struct {
	SourceEventType string `json:"source_event_type"`
	Source          string `json:"source"`
	ToolCallID      string `json:"tool_call_id"`
	Tool            string `json:"tool"`
	Decision        string `json:"decision"`
	TNS             int64  `json:"t_ns"`
	Rule            string `json:"rule,omitempty"`
}

// maxCursors limits the cursors that are remembered per client.
const maxCursors = 4096

// pages remembers which page each cursor of a tool leads to.
type pages struct {
	mu   sync.Mutex
	next map[string]int // by tool and cursor
}

// pages returns the number of the page that a call got; nil if it is unknown or the tool has no pages.
func (c *call) pages() *int {
	next := textMember(c.output, "nextCursor")
	cursor := textMember(c.action.Parameters, "cursor")
	if next == nil && cursor == nil {
		return nil
	}
	p := &c.client.cursors
	p.mu.Lock()
	defer p.mu.Unlock()
	page, known := 1, true
	if cursor != nil {
		page, known = p.next[c.action.Tool+"\x00"+*cursor]
		page = max(1, page)
	}
	if next != nil && len(*next) <= maxIdentifier && len(p.next) < maxCursors {
		if p.next == nil {
			p.next = map[string]int{}
		}
		p.next[c.action.Tool+"\x00"+*next] = page + 1
	}
	if !known {
		return nil
	}
	return &page
}
