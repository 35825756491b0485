package policy

import (
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// maxStateKeys bounds the keys of a State: one for each tool.
const maxStateKeys = 4096

// State is what rules of the kind require_state look at. It is what the gateway
// itself saw of a run, never what a client claims:
//
//	run          "open" while the run is open
//	verdict      of the last check: pass or fail
//	last_tool    the last tool that ran
//	tool:<name>  how its last call ended: success, failed or rejected
//
// It is safe for concurrent use.
type State struct {
	mu     sync.Mutex
	values map[string]string
}

// NewState has no key set.
func NewState() *State { return &State{values: map[string]string{}} }

// Get is the value of a key, "" where there is none.
func (s *State) Get(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// Set sets a key.
func (s *State) Set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.values[key]; known || len(s.values) < maxStateKeys {
		s.values[key] = value
	}
}

// Ended takes note of how a call ended, and of the verdict of a check.
func (s *State) Ended(tool string, o *schema.CallOutcome, verdict string) {
	switch o.Kind {
	case schema.CallSuccess:
		s.Set("tool:"+tool, "success")
		s.Set("last_tool", tool)
		if verdict != schema.VerdictNotRun {
			s.Set("verdict", verdict)
		}
	case schema.CallExecutionFailed:
		s.Set("tool:"+tool, "failed")
		s.Set("last_tool", tool)
	case schema.CallToolNotFound:
	default:
		s.Set("tool:"+tool, "rejected")
	}
}
