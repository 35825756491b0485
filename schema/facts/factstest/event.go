// Package factstest makes lines for tests of readers.
package factstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// Event makes an event of words: what was done, the names, and words with a colon that qualify it. The kinds have their
// own names, or one of create, read, exchange and bind-mount; :failed and :tried say how a call ended, :claimed,
// :directory, :caller, :relative and :mounts what is doubtful, :check, :runner and :setup whose doing it was. :late5
// and :repeat5 are lines about what happened at 5 ns. The line with number n happened at n ns.
func Event(t testing.TB, seq int, words string) *schema.KernelEvent {
	t.Helper()
	e := &schema.KernelEvent{Seq: uint64(seq), TNS: int64(seq), PID: 7, ExecID: 1, HasResult: true}
	var names []string
	w := strings.Fields(words)
	for _, word := range w[1:] {
		switch {
		case word == ":failed":
			e.Result = -2
		case word == ":tried":
			e.HasResult, e.Attempted = false, true
		case word == ":check":
			e.Class = schema.ClassCheck
		case word == ":runner":
			e.Class = schema.ClassRunner
		case word == ":setup":
			e.Class = schema.ClassSetup
		case word == ":claimed":
			e.Claimed = true
		case word == ":directory":
			e.DirectoryClaimed = true
		case word == ":caller":
			e.UserMemory = true
		case word == ":relative":
			e.Marks |= schema.MarkRelative
		case word == ":mounts":
			e.Marks |= schema.MarkMountNamespace
		case word == ":memfd":
			e.Marks |= schema.MarkMemfd
		case strings.HasPrefix(word, ":late"):
			e.Late = true
			fmt.Sscanf(word, ":late%d", &e.TNS)
		case strings.HasPrefix(word, ":repeat"):
			e.Repeat, e.Count = true, 1
			fmt.Sscanf(word, ":repeat%d", &e.TFirstNS)
		default:
			names = append(names, word)
		}
	}
	if len(names) > 0 {
		e.Value = names[0]
	}
	if len(names) > 1 {
		e.Target = names[1]
	}
	switch w[0] {
	case "create":
		e.Kind, e.Flags, e.Created = schema.KindOpen, 0o101, true
	case "read":
		e.Kind = schema.KindOpen
	case "write":
		e.Kind = schema.KindWrite
	case "exchange":
		e.Kind, e.Flags = schema.KindRename, 2
	case "bind-mount":
		e.Kind, e.Call = schema.KindMount, "mount"
	case "exec":
		e.Kind, e.ParentExecID, e.ExecID = schema.KindExec, e.ExecID, uint64(100+seq)
		e.Argv = names
	default:
		kind, ok := schema.ParseKind(w[0])
		if !ok {
			t.Fatalf("no kind %q", w[0])
		}
		e.Kind = kind
	}
	return e
}
