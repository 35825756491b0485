package model

// Codes of the reasons why the model layer is not complete.
const (
	reasonUnknown   = "model_events_unknown"
	reasonOdd       = "model_member_odd"
	reasonUndecoded = "model_body_undecoded"
	reasonLeftOut   = "model_body_left_out"
	reasonUnwritten = "model_not_written"
	reasonLost      = "model_answer_not_kept"
	reasonMany      = "model_requests_not_recorded"
	reasonBytes     = "model_bytes_differ"
)
