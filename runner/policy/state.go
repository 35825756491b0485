package policy

import (
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// maxStateKeys limits the keys of a State, which has one for each tool.
const maxStateKeys = 4096

// State is what rules of the kind require_state check. It is what the gateway itself has seen of a run, never what a
// client claims:
//
//	run          "open" while the run is open
//	verdict      of the last check: pass or fail
//	last_tool    the last tool that was called
//	tool:<name>  running, or how its last call ended: success, failed or rejected
//
// It is safe for concurrent use.
type State struct {
	mu     sync.Mutex
	values map[string]string
}

// NewState returns an empty state.
func NewState() *State { return &State{values: map[string]string{}} }

// Set sets a key.
func (s *State) Set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(key, value)
}

// set sets a key. s.mu is held.
func (s *State) set(key, value string) {
	if _, known := s.values[key]; known || len(s.values) < maxStateKeys {
		s.values[key] = value
	}
}

// Decide checks a call against sets of rules that use this state. If none denies it and take agrees, the call's tool
// is running from this moment. Of several concurrent calls, the second sees what the first has changed.
func (s *State) Decide(c *Call, sets []*Set, take func() bool) (found []Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.State = func(key string) string { return s.values[key] }
	for _, set := range sets {
		found = append(found, set.Check(c)...)
	}
	if len(found) == 0 && take() && !c.DryRun {
		s.set("tool:"+c.Tool, "running")
		s.set("last_tool", c.Tool)
	}
	return found
}

// Ended records how a call ended, and the verdict of a check.
func (s *State) Ended(tool string, o *schema.CallOutcome, verdict string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o.Kind {
	case schema.CallSuccess:
		s.set("tool:"+tool, "success")
		if verdict != schema.VerdictNotRun {
			s.set("verdict", verdict)
		}
	case schema.CallExecutionFailed:
		s.set("tool:"+tool, "failed")
	case schema.CallToolNotFound:
	default:
		if s.values["tool:"+tool] != "running" {
			s.set("tool:"+tool, "rejected")
		}
	}
}
