package gateway

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/schema"
)

// audit writes the one call event of a call: to the audit layer of run, which
// may be nil in serve, and to every sink. It also counts it.
func (g *Gateway) audit(run *recording.Run, e *schema.CallEventBody) error {
	e.TS = timestamp(time.Now())
	e.SchemaVersion = 2
	if e.GrantedCapabilities == nil {
		e.GrantedCapabilities = []string{}
	}
	outcome := e.Outcome
	e.Outcome = outcome.Wire()
	body, err := json.Marshal(e)
	if err != nil {
		body = []byte("{}") // plain data always encodes
	}
	runID := "none"
	if run != nil {
		runID = run.ID
		err = run.CallEvent(body, outcome.Kind)
	}
	g.count.call(&outcome, run != nil && err == nil)
	if len(g.cfg.Sinks) > 0 {
		event := schema.CallEvent{Schema: schema.CallEventV2, RunID: runID, Seq: g.events.Add(1) - 1, CallEventBody: *e}
		for _, s := range g.cfg.Sinks {
			s.OnCall(event)
		}
	}
	return err
}

// timestamp is a time in UTC with milliseconds. It is made of time.RFC3339, which package
// time formats much faster than any other layout.
func timestamp(t time.Time) string {
	var room [32]byte
	b := bytes.TrimSuffix(t.UTC().AppendFormat(room[:0], time.RFC3339), []byte("Z"))
	ms := t.Nanosecond() / 1e6
	return string(append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z'))
}
