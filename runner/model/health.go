package model

import (
	"fmt"

	"github.com/assay-run/assay-run/schema"
)

// Codes of the reasons why the layer is less than complete.
const (
	reasonUnknown   = "model_events_unknown"
	reasonUndecoded = "model_body_undecoded"
	reasonLeftOut   = "model_body_left_out"
	reasonLost      = "model_answer_not_kept"
	reasonMany      = "model_requests_not_recorded"
	reasonBytes     = "model_bytes_differ"
)

// Health says how much the model layer has, after Close. The layer is complete if the kernel counted the same bytes
// on their way to the endpoint as the endpoint did. h has the kernel layer's claims.
func (r *Recorder) Health(h *schema.ObservationHealth) {
	h.ModelLayer = schema.Unconfirmed
	if h.KernelLayer != schema.Absent && r.observed {
		flow, explained := r.flow()
		h.ModelFlow = &flow
		switch {
		case h.KernelLayer != schema.Complete:
		case flow.ToGateway == flow.KernelToGateway || explained:
			h.ModelLayer = schema.Complete
		default:
			h.ModelLayer = schema.Partial
			h.Reasons = append(h.Reasons, schema.Reason{
				Subject: "model", Code: reasonBytes,
				Message: fmt.Sprintf("the kernel counted %d bytes from the command to the model "+
					"gateway, and the gateway "+
					"read %d: what they said may be missing", flow.KernelToGateway, flow.ToGateway),
				Remedy: "let the agent wait for its answers before it ends",
			})
		}
	}
	if c := h.Layers[schema.LayerName(schema.ModelPath)]; c.Dropped > 0 {
		h.ModelLayer = schema.Partial
	}
	if r.taken > maxTaken {
		r.reasons[reasonMany] = r.taken - maxTaken
	}
	for _, why := range []struct{ code, one, many, remedy string }{
		{reasonUnknown, "answer had", "answers had",
			"see unknown_kinds in the model layer; a newer assay-run may know them"},
		{reasonUndecoded, "body", "bodies", "let the agent and the provider use gzip, zstd or no content encoding"},
		{reasonLeftOut, "body or tool call was", "bodies or tool calls were", ""},
		{reasonMany, "request was", "requests were", ""},
		{reasonLost, "request or answer was", "requests or answers were", "make room on the disk that holds the spool"},
	} {
		n := r.reasons[why.code]
		if n == 0 {
			continue
		}
		h.ModelLayer = schema.Partial
		message := schema.Count(int(n), why.one, why.many)
		switch why.code {
		case reasonUnknown:
			message += " parts of kinds that this version does not know"
		case reasonUndecoded:
			message += " could not be decoded: the lines say nothing of what they had"
		default:
			message += " too much to keep"
		}
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "model", Code: why.code, Message: message, Remedy: why.remedy})
	}
}
