package gateway

import (
	"maps"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Metrics is a snapshot of what the gateway did. Calls is the sum of Outcomes
// and the number of call events; for one run, Outcomes agrees with the audit
// layer.
type Metrics struct {
	Calls    uint64            `json:"calls"`
	Outcomes map[string]uint64 `json:"outcomes"` // by kind
	// Errors counts what did not succeed: by the gateway's code for
	// execution_failed (tool_error for a tool's own codes), by kind for the rest.
	Errors map[string]uint64 `json:"errors"`
	// Events is how many call events were written to audit layers.
	Events uint64 `json:"events"`
	// Unrecorded is how many call events no audit layer took, because no run
	// was open (in serve) or its recorder was broken.
	Unrecorded uint64 `json:"unrecorded"`
	// Drops is how many call events each sink dropped.
	Drops map[string]uint64 `json:"drops"`
	Turns uint64            `json:"turns"`
	// Refused is how many messages were answered with an error that is not a
	// call's, or ended the connection.
	Refused uint64 `json:"refused"`
	// LateResults is how many results came after their call had ended, or for
	// no call.
	LateResults uint64 `json:"late_results"`
	Connections int    `json:"connections"`
	// InFlightBytes is the memory that running and waiting requests hold.
	InFlightBytes int64 `json:"in_flight_bytes"`
}

// counters are the live numbers behind Metrics. One lock keeps a snapshot
// consistent.
type counters struct {
	mu sync.Mutex
	m  Metrics
}

func newCounters() *counters {
	return &counters{m: Metrics{Outcomes: map[string]uint64{}, Errors: map[string]uint64{}, Drops: map[string]uint64{}}}
}

func (c *counters) add(f func(m *Metrics)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.m)
}

// call counts one call event.
func (c *counters) call(o *schema.CallOutcome, recorded bool) {
	c.add(func(m *Metrics) {
		m.Calls++
		m.Outcomes[o.Kind]++
		switch o.Kind {
		case schema.CallSuccess:
		case schema.CallExecutionFailed:
			m.Errors[failureKind(o.Code)]++
		default:
			m.Errors[o.Kind]++
		}
		if recorded {
			m.Events++
		} else {
			m.Unrecorded++
		}
	})
}

// failureKind is the gateway's own code for a failure. Tools can have any number of
// codes, so metrics do not list those.
func failureKind(code string) string {
	switch code {
	case schema.FailCallbackLost, schema.FailDeadline, schema.FailCancelled:
		return code
	}
	return schema.FailToolError
}

// Metrics is a consistent snapshot.
func (g *Gateway) Metrics() Metrics {
	g.count.mu.Lock()
	defer g.count.mu.Unlock()
	m := g.count.m
	t := g.server.Stats()
	m.Refused, m.LateResults, m.Connections, m.InFlightBytes = t.Refused, t.LateResults, t.Connections, t.InFlightBytes
	m.Outcomes, m.Errors, m.Drops = maps.Clone(m.Outcomes), maps.Clone(m.Errors), map[string]uint64{}
	for _, s := range g.cfg.Sinks {
		m.Drops[s.Name()] += s.Drops()
	}
	return m
}
