package gateway

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// audit writes the one call event of a call: to the audit layer of rec, which
// may be nil in serve, and to every sink. It also counts it.
func (g *Gateway) audit(rec *recording, e *schema.CallEventBody) error {
	e.TS = time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	e.SchemaVersion = 2
	if e.GrantedCapabilities == nil {
		e.GrantedCapabilities = []string{}
	}
	e.SecretsResolved = []string{}
	body, err := json.Marshal(e)
	if err != nil {
		body = []byte("{}") // plain data always encodes
	}
	runID := "none"
	if rec != nil {
		runID = rec.id
		err = rec.append(schema.AuditPath, schema.CallEventV2, body)
		if err == nil {
			rec.countCall(e.Outcome.Kind)
		}
	}
	g.count.call(&e.Outcome, rec != nil && err == nil)
	if len(g.cfg.Sinks) > 0 {
		line := appendHead(nil, schema.CallEventV2, runID, g.events.Add(1)-1)
		line = append(append(line, body[1:]...), '\n')
		for _, s := range g.cfg.Sinks {
			s.offer(line)
		}
	}
	return err
}

// appendHead opens a layer line: the body's members follow.
func appendHead(dst []byte, schemaID, runID string, seq uint64) []byte {
	dst = append(dst, `{"schema":"`...)
	dst = append(dst, schemaID...)
	dst = append(dst, `","run_id":"`...)
	dst = append(dst, runID...) // letters, digits, '_' and '-'
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, ',')
}
