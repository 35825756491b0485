package binding

import (
	"bytes"
	"crypto/sha256"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Model is what the model gateway knows about calls that models proposed. Both functions are called while events are
// bound.
type Model struct {
	// Known makes sure that everything that passed before t, in nanoseconds since run_started, has been passed in,
	// except for answers that have not ended.
	Known func(t int64)
	// Unsettled reports whether a part of an answer that has not ended passed before t.
	Unsettled func(t int64) bool
	// Opens means that nothing else says when calls begin.
	Opens bool
}

// proposal is a tool call in the answer of a model.
type proposal struct {
	id, tool string
	args     []byte // digest of the canonical arguments; nil: none, or not JSON
	command  string // of a shell; empty: none
	seq      *uint64
	own      *call // the call that it opened, or nil
	called   *call // the call that it proposed; nil: not known
	answered bool
	failed   bool // the result is an error
}

// canonical returns the digest of a JSON value's canonical form (RFC 8785).
func canonical(v []byte) []byte {
	own := jsontext.Value(bytes.Clone(v))
	if len(v) == 0 || own.Canonicalize() != nil {
		return nil
	}
	sum := sha256.Sum256(own)
	return sum[:]
}

// commandOf returns the shell command in the arguments of a call. Codex's shell tool has an array of a shell's
// arguments, other tools have a text.
func commandOf(args []byte) string {
	var a struct {
		Command jsontext.Value `json:"command"`
		Cmd     jsontext.Value `json:"cmd"`
	}
	if json.Unmarshal(args, &a) != nil {
		return ""
	}
	for _, v := range []jsontext.Value{a.Command, a.Cmd} {
		var text string
		var argv []string
		switch {
		case json.Unmarshal(v, &text) == nil && text != "":
			return text
		case json.Unmarshal(v, &argv) == nil && joined(argv) != "":
			return strings.Join(argv[2:], "\x00")
		}
	}
	return ""
}

// sameTool reports whether a model's name for a tool means the tool of a call: agents prepend the server's name to
// MCP tools.
func sameTool(proposed, called string) bool {
	return proposed == called || called != "" && strings.HasSuffix(proposed, "__"+called)
}
