package gateway

import (
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// Bounds of a registration, in bytes unless they say otherwise.
const (
	maxToolName     = 128
	maxDescription  = 16 << 10
	maxSchemaBytes  = 256 << 10
	maxCapabilities = 64
	maxPerMinute    = 60_000
	maxDeadline     = 24 * time.Hour
)

// toolSpec is a tool as tools.register takes it.
type toolSpec struct {
	Name            string         `json:"name"`
	Description     string         `json:"description"`
	Parameters      jsontext.Value `json:"parameters"` // JSON Schema
	Capabilities    []string       `json:"capabilities"`
	MaxConcurrent   int            `json:"max_concurrent"`
	RateLimitPerMin int            `json:"rate_limit_per_min"`
	DeadlineMS      int64          `json:"deadline_ms"`
	Tier            string         `json:"tier"`
}

// tool is a registered tool. It is called back on the connection that
// registered it.
type tool struct {
	name     string
	caps     []string // sorted
	tier     string
	deadline time.Duration
	schema   *paramSchema // nil accepts anything
	rate     *policy.RateLimit
	most     int // at once; 0 has no limit

	mu      sync.Mutex
	running int
}

// newTool checks a registration.
func newTool(s *toolSpec, l *Limits) (*tool, *rpcError) {
	refuse := func(format string, args ...any) (*tool, *rpcError) {
		return nil, errorf(codeInvalidParams, "tool %.*q: "+format, append([]any{maxToolName, s.Name}, args...)...)
	}
	t := &tool{name: s.Name, caps: slices.Clone(s.Capabilities), tier: s.Tier, deadline: l.CallTimeout, most: s.MaxConcurrent}
	slices.Sort(t.caps)
	t.caps = slices.Compact(t.caps)
	switch {
	case s.Name == "" || len(s.Name) > maxToolName:
		return refuse("a name has 1 to %d bytes", maxToolName)
	case len(s.Description) > maxDescription:
		return refuse("a description has at most %d bytes", maxDescription)
	case len(s.Parameters) > maxSchemaBytes:
		return refuse("a schema has at most %d bytes", maxSchemaBytes)
	case len(s.Capabilities) > maxCapabilities || slices.ContainsFunc(t.caps, func(c string) bool { return c == "" || len(c) > maxToolName }):
		return refuse("at most %d capabilities of 1 to %d bytes", maxCapabilities, maxToolName)
	case s.MaxConcurrent < 0 || s.RateLimitPerMin < 0 || s.RateLimitPerMin > maxPerMinute:
		return refuse("max_concurrent is not negative, rate_limit_per_min is 0 (no limit) to %d", maxPerMinute)
	case s.DeadlineMS < 0 || s.DeadlineMS > maxDeadline.Milliseconds():
		return refuse("deadline_ms is 0 (the default) to %d", maxDeadline.Milliseconds())
	case len(s.Tier) > maxToolName:
		return refuse("a tier has at most %d bytes", maxToolName)
	}
	def(&t.tier, schema.DefaultTier)
	if s.DeadlineMS > 0 {
		t.deadline = time.Duration(s.DeadlineMS) * time.Millisecond
	}
	if s.RateLimitPerMin > 0 {
		t.rate = policy.NewRateLimit(s.RateLimitPerMin, time.Minute)
	}
	var err error
	if t.schema, err = compileParams(s.Parameters); err != nil {
		return refuse("parameters: %s", brief(err))
	}
	return t, nil
}

// begin takes one of the tool's places, if there is one.
func (t *tool) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most > 0 && t.running >= t.most {
		return false
	}
	t.running++
	return true
}

func (t *tool) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// agentName is what may name an agent: it becomes a folder.
var agentName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
})
