package redact

import (
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// vocabulary are the words of the format itself: keys and values that every
// bundle has. Whoever could have them redacted, by passing one as a password,
// would make the bundle unreadable.
type vocabulary struct{ more string }

// schemaText has every key and every fixed value of the format.
var schemaText = sync.OnceValue(func() string {
	var b strings.Builder
	for _, id := range schema.IDs() {
		text, err := schema.JSONSchema(id)
		if err != nil {
			panic("embedded schemas: " + err.Error())
		}
		b.Write(text)
	}
	b.WriteString(frames())
	return b.String()
})

// frames are the replacements without tags. Whoever could have a part of one redacted
// would have every replacement replaced.
var frames = sync.OnceValue(func() string {
	var b strings.Builder
	rules := []string{RuleEnv, RuleGiven, RuleArgument, RuleURL, ruleKey, ruleCut}
	for _, s := range shapes() {
		rules = append(rules, s.rule)
	}
	for _, rule := range rules {
		b.WriteString("\n" + open + rule + ":")
	}
	return b.String()
})

func (v *vocabulary) have(text string) bool {
	return strings.Contains(schemaText(), text) || v.more != "" && strings.Contains(v.more, text)
}

// formal matches strings that the format constrains: a digest, and a time. They stay,
// so that no secret can make a line invalid.
var formal = lazy(`^(?:sha256:[0-9a-f]{64}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]{5}))$`)

// formalValues matches the values of keys that the format constrains.
var formalValues = map[string]pattern{
	"errno": lazy(`^(?:E[A-Z0-9]+|errno_[0-9]+)$`), "signal": signalName, "signal_name": signalName,
	"call_id":  lazy(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`),
	"git_blob": lazy(`^[0-9a-f]{40}$`),
}

var (
	signalName = lazy(`^SIG[A-Z0-9]+$`)
	// ownWord matches values of "code" and "type" in members that hold nothing of
	// the command's under these keys.
	ownWord  = lazy(`^[a-z][a-z0-9_]*$`)
	ownWords = map[string]bool{schema.EventsPath: true, schema.HealthPath: true, schema.ResultPath: true}
)

const maxFormal = 80 // bytes

// isFormal reports whether the format itself constrains a string of a member.
func isFormal(field, key string, value []byte) bool {
	if ownWords[field] && (key == "code" || key == "type") && ownWord().Match(value) {
		return true
	}
	re := formalValues[key]
	return formal().Match(value) || re != nil && re().Match(value)
}

// placeholder matches what stands in a secret's place in examples and templates.
// It is taken out where it stands, but is not looked for elsewhere.
var placeholder = lazy(`^[<{\[%$*]|^(?i:x+|\.+|[a-z_-]*(?:password|passwd|passphrase|token|secret|api[_-]?key|username|changeme|example|placeholder|credentials?)[_-]?(?:here)?)$`)
