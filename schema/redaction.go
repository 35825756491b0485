package schema

// Modes of a Redaction.
const (
	RedactionEnabled  = "enabled"
	RedactionDisabled = "disabled" // --unsafe-disable-redaction, or a library that gave no redactor
	// RedactionRecovered: the recorder ended before it could write the receipt, and
	// whoever recovered the run looked for the shapes of credentials alone.
	RedactionRecovered = "recovered"
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
	// Removals tell what was taken out of members that were written already, the
	// oldest first. Empty: nothing.
	Removals []Removal `json:"removals,omitempty"`
}

// Removal is what was taken out of written members: by the last search before the run
// was sealed, or later, out of a sealed bundle.
type Removal struct {
	// From is the identity of that bundle; empty before the run was sealed.
	From string `json:"from,omitempty"`
	// By is the program; empty where it is the recorder.
	By string `json:"by,omitempty"`
	// Rules names the rules that were given for it.
	Rules []string `json:"rules,omitempty"`
	// RedactedCount, ByRule and ByField are as in Redaction, which counts those before
	// the sealing too.
	RedactedCount uint64            `json:"redacted_count"`
	ByRule        map[string]uint64 `json:"by_rule"`
	ByField       map[string]uint64 `json:"by_field"`
	// Dropped names members that were left out, or layers that were emptied, since a
	// secret could not be taken out of them.
	Dropped []string `json:"dropped,omitempty"`
}
