package evidence

import (
	"fmt"
	"sync"

	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// maxNames limits the tools and the decisions in the capability surface.
const maxNames = 10_000

// Calls are the tool calls of a run: what was reported and decided about them, and which kernel events belong to
// which call. It implements gateway.Observer. All methods are safe for concurrent use.
type Calls struct {
	*binding.Correlator
	now func() int64

	mu               sync.Mutex
	tools, decisions map[string]bool
	crowded          bool // there are more than maxNames
}

// NewCalls makes the Calls of the run of l.
func NewCalls(l *Log, o binding.Options) *Calls {
	return &Calls{Correlator: binding.New(o), now: l.Now, tools: map[string]bool{}, decisions: map[string]bool{}}
}

// DecidedOn records a decision about a tool; decision is empty if there was none.
func (c *Calls) DecidedOn(tool, decision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name(c.tools, tool)
	if decision != "" {
		c.name(c.decisions, decision+":"+tool)
	}
}

func (c *Calls) name(set map[string]bool, s string) {
	if len(set) < maxNames {
		set[s] = true
	} else if !set[s] {
		c.crowded = true
	}
}

// CallDecided and the next methods implement gateway.Observer.
func (c *Calls) CallDecided(id, tool, decision string) {
	c.DecidedOn(tool, decision)
	c.Decided(id, tool, decision)
}

func (c *Calls) CallArguments(id string, parameters []byte) { c.Arguments(id, parameters) }

func (c *Calls) CallStarted(id, tool string, tree uint32) { c.Begin(id, tool, tree, c.now) }

func (c *Calls) CallEnded(id string) { c.End(id, c.now) }

func (c *Calls) CallReported(id, tool string, denied bool) { c.Reported(id, tool, denied) }

// surface adds the tools and the decisions about them to the surface.
func (c *Calls) surface(s *surface.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.tools {
		s.AddTool(t)
	}
	for d := range c.decisions {
		s.AddDecision(d)
	}
}

// report returns which kernel events belong to which call.
func (c *Calls) report(l *Log, f Findings) *schema.CorrelationReport {
	return c.Report(binding.Facts{
		RunID: l.RunID, Correlation: f.Correlation, Observed: f.Observed,
		KernelLines: l.Recorder.Counts(schema.KernelPath).Written,
	})
}

// health sets the states of the layers that report calls.
func (c *Calls) health(h *schema.ObservationHealth) {
	if n := h.Layers[schema.LayerName(schema.PolicyPath)].Written; n > 0 {
		h.PolicyLayer = schema.Present
		h.Notes = append(h.Notes, fmt.Sprintf("s4_policy_capture: policy_events=%d", n))
	}
	if n := h.Layers[schema.LayerName(schema.SDKPath)].Written; n > 0 {
		h.SDKLayer = schema.SelfReported
		h.Notes = append(h.Notes, fmt.Sprintf("s5_sdk_capture: sdk_events=%d sdk_tool_calls=%d", n, c.SDKCalls()))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.crowded {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "surface", Code: "too_many_names",
			Message: fmt.Sprintf(
				"only the first %d tools and decisions are in the capability surface; the layers have them all",
				maxNames,
			),
			Remedy: "read them with assay-run events --layer policy",
		})
	}
}
