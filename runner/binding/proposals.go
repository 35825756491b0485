package binding

import (
	"bytes"
	"crypto/sha256"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Model is what the model gateway knows of the calls that a model proposed. Both functions are called while events are
// bound.
type Model struct {
	// Known makes sure that everything that passed before t, nanoseconds since run_started, has been handed in, but
	// for answers that have not ended.
	Known func(t int64)
	// Unsettled reports whether a part of an answer that has not ended passed before t.
	Unsettled func(t int64) bool
	// Opens tells that nobody else says when calls begin.
	Opens bool
}

// proposal is a tool call in the answer of a model.
type proposal struct {
	id, tool string
	args     []byte // the digest of canonical arguments; nil: there are none, or they are not JSON
	command  string // of a shell; empty: none
	seq      *uint64
	own      *call // the call that it opened; nil for none
	called   *call // the call that it is the proposal of; nil: none is known
	answered bool
}

// canonical is the digest of a JSON value in its canonical form (RFC 8785).
func canonical(v []byte) []byte {
	own := jsontext.Value(bytes.Clone(v))
	if len(v) == 0 || own.Canonicalize() != nil {
		return nil
	}
	sum := sha256.Sum256(own)
	return sum[:]
}

// commandOf is the shell command in the arguments of a call, as shells write it: Codex's shell has an array of a
// shell's arguments, other tools have a text.
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

// sameTool reports whether a model's name of a tool is a call's: agents put the server's name before those of MCP.
func sameTool(proposed, called string) bool {
	return proposed == called || called != "" && strings.HasSuffix(proposed, "__"+called)
}
