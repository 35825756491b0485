package model

import (
	"github.com/assay-run/assay-run/schema"
)

// Codes of the reasons why the layer is less than complete.
const (
	reasonUnknown   = "model_events_unknown"
	reasonUndecoded = "model_body_undecoded"
	reasonLeftOut   = "model_body_left_out"
	reasonLost      = "model_answer_not_kept"
)

// Health says how much the model layer has, after Close.
func (r *Recorder) Health(h *schema.ObservationHealth) {
	h.ModelLayer = schema.Unconfirmed
	if c := h.Layers[schema.LayerName(schema.ModelPath)]; c.Dropped > 0 {
		h.ModelLayer = schema.Partial
	}
	for _, why := range []struct{ code, one, many, remedy string }{
		{reasonUnknown, "answer had", "answers had",
			"see unknown_kinds in the model layer; a newer assay-run may know them"},
		{reasonUndecoded, "body", "bodies", "let the agent and the provider use gzip, zstd or no content encoding"},
		{reasonLeftOut, "body or tool call was", "bodies or tool calls were", ""},
		{reasonLost, "answer was", "answers were", "make room on the disk that holds the spool"},
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
