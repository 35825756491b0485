package gateway

import (
	"sync"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// maxStateKeys bounds the state of a scope: one key for each tool.
const maxStateKeys = 4096

// scope is a policy in force and the state that its rules may require. The
// state is what the gateway itself saw, never what a client claims:
//
//	run          "open" while a recording is open
//	verdict      of the last check: pass or fail
//	last_tool    the last tool that ran
//	tool:<name>  how its last call ended: success, failed or rejected
type scope struct {
	rules *policy.Set

	mu    sync.Mutex
	state map[string]string
}

func newScope(f *policy.File) *scope {
	return &scope{rules: policy.NewSet(f), state: map[string]string{}}
}

func (s *scope) get(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state[key]
}

func (s *scope) set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.state[key]; known || len(s.state) < maxStateKeys {
		s.state[key] = value
	}
}

// ended takes note of how a call ended.
func (s *scope) ended(tool string, o *schema.CallOutcome, verdict string) {
	switch o.Kind {
	case schema.CallSuccess:
		s.set("tool:"+tool, "success")
		s.set("last_tool", tool)
		if verdict != schema.VerdictNotRun {
			s.set("verdict", verdict)
		}
	case schema.CallExecutionFailed:
		s.set("tool:"+tool, "failed")
		s.set("last_tool", tool)
	case schema.CallToolNotFound:
	default:
		s.set("tool:"+tool, "rejected")
	}
}
