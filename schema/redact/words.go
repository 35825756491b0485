package redact

import (
	"regexp"
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
	for _, rule := range []string{RuleEnv, RuleGiven, RuleArgument, RuleURL, ruleKey, ruleCut} {
		b.WriteString("\n" + open + rule + ":")
	}
	return b.String()
})

func (v *vocabulary) have(text string) bool {
	return strings.Contains(schemaText(), text) || v.more != "" && strings.Contains(v.more, text)
}

// formal matches strings that the format constrains: a digest, and a time. They stay,
// so that no secret can make a line invalid.
var formal = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]{5}))$`)

const maxFormal = 80 // bytes

// placeholder matches what stands in a secret's place in examples and templates.
// It is taken out where it stands, but is not looked for elsewhere.
var placeholder = regexp.MustCompile(`^[<{\[%$*]|^(?i:x+|\.+|[a-z_-]*(?:password|passwd|passphrase|token|secret|api[_-]?key|username|changeme|example|placeholder|credentials?)[_-]?(?:here)?)$`)
