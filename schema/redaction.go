package schema

// Modes of a Redaction.
const (
	RedactionEnabled  = "enabled"
	RedactionDisabled = "disabled" // --unsafe-disable-redaction, or a library that gave no redactor
)

// Redaction is the receipt of what was taken out of a bundle's members before
// they were written. What is in observation-health.json itself is not counted.
type Redaction struct {
	Mode string `json:"mode"`
	// RedactedCount is how many times something was taken out; ByRule and
	// ByField count the same by rule and by member. Never null.
	RedactedCount uint64            `json:"redacted_count"`
	ByRule        map[string]uint64 `json:"by_rule"`
	ByField       map[string]uint64 `json:"by_field"`
	// KeyScope is host, where equal secrets have equal tags in all of a host's
	// bundles, file, or ephemeral, where only within this one. KeyID tells keys
	// apart. Both are absent where redaction was disabled.
	KeyScope string `json:"key_scope,omitempty"`
	KeyID    string `json:"key_id,omitempty"`
	// NotSearched names kinds of content that secrets are not found in.
	NotSearched []string `json:"not_searched,omitempty"`
}
