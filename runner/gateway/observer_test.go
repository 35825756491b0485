package gateway

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

type observer struct {
	mu  sync.Mutex
	got []string
}

func (o *observer) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, fmt.Sprintf(format, args...))
}

func (o *observer) CallDecided(id, tool, decision string) {
	o.note("decided %s %s %s", id, tool, decision)
}
func (o *observer) CallStarted(id, tool string, _ uint32) { o.note("started %s %s", id, tool) }
func (o *observer) CallEnded(id string)                   { o.note("ended %s", id) }
func (o *observer) CallArguments(string, []byte)          {}

func (o *observer) CallReported(id, tool string, denied bool) {
	o.note("reported %s %s %v", id, tool, denied)
}

// TestObserver: the observer gets each call in the order of events, and no calls that never reached a tool.
func TestObserver(t *testing.T) {
	o := &observer{}
	f := start(t, func(c *Config) { c.Observer = o })
	c := dial(t, f.path)
	c.tool = func(p toolsExecute) (string, string) {
		o.note("tool %s", p.ToolCallID)
		return `{}`, ""
	}
	c.must("tools.register",
		`[{"name":"yes","description":"","parameters":{}},{"name":"no","description":"","parameters":{}}]`)
	c.must("policy.register", `{"name":"r","rule":"deny_tool","target":"no"}`)
	for _, call := range [][2]string{{"tc_1", "yes"}, {"tc_2", "no"}, {"tc_3", "unknown"}} {
		c.must("proposal.submit",
			fmt.Sprintf(`{"proposal":{"id":"p","source":"t","actions":[{"id":"a","type":"tool_call","tool_call_id":%q,"tool":%q,"parameters":{}}]}}`, call[0], call[1]))
	}
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("runs.record_turns",
		`{"turns":[{"index":0,"tool":"x","tool_call_id":"tc_4"},{"index":1,"tool":"nameless"},{"index":2,"tool":"y","tool_call_id":"tc_5","policy_rejected":{"rule":"r"}}]}`)
	want := []string{"decided tc_1 yes allow", "started tc_1 yes", "tool tc_1", "ended tc_1", "decided tc_2 no deny",
		"reported tc_4 x false", "reported tc_5 y true"}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.got, want) {
		t.Errorf("heard %q, want %q", o.got, want)
	}
}
