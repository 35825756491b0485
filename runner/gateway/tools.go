package gateway

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/toolschema"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// Limits of a registration, in bytes unless noted.
const (
	maxDescription  = 16 << 10
	maxSchemaBytes  = 256 << 10
	maxCapabilities = 64
	maxPerMinute    = 60_000
	maxDeadline     = 24 * time.Hour
)

// toolSpec is a tool in tools.register.
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

// tool is a registered tool. The gateway calls it on the connection that registered it.
type tool struct {
	name     string
	caps     []string // sorted
	tier     string
	deadline time.Duration
	schema   *toolschema.Schema // nil accepts everything
	rate     *policy.RateLimit
	most     int // calls at the same time; 0: no limit

	mu      sync.Mutex
	running int
}

// newTool checks a registration.
func newTool(s *toolSpec, l *Limits) (*tool, *jsonrpc.Error) {
	refuse := func(format string, args ...any) (*tool, *jsonrpc.Error) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "tool %.*q: "+format,
			append([]any{policyfile.MaxName, s.Name}, args...)...)
	}
	t := &tool{name: s.Name, caps: slices.Clone(s.Capabilities), tier: s.Tier, deadline: l.CallTimeout,
		most: s.MaxConcurrent}
	slices.Sort(t.caps)
	t.caps = slices.Compact(t.caps)
	switch {
	case s.Name == "" || len(s.Name) > policyfile.MaxName:
		return refuse("a name must have 1 to %d bytes", policyfile.MaxName)
	case len(s.Description) > maxDescription:
		return refuse("a description must have at most %d bytes", maxDescription)
	case len(s.Parameters) > maxSchemaBytes:
		return refuse("a schema must have at most %d bytes", maxSchemaBytes)
	case len(s.Capabilities) > maxCapabilities || slices.ContainsFunc(t.caps, func(c string) bool {
		return c == "" || len(c) > policyfile.MaxName
	}):
		return refuse("must have at most %d capabilities of 1 to %d bytes", maxCapabilities, policyfile.MaxName)
	case s.MaxConcurrent < 0 || s.RateLimitPerMin < 0 || s.RateLimitPerMin > maxPerMinute:
		return refuse("max_concurrent must not be negative, rate_limit_per_min must be 0 (no limit) to %d",
			maxPerMinute)
	case s.DeadlineMS < 0 || s.DeadlineMS > maxDeadline.Milliseconds():
		return refuse("deadline_ms must be 0 (the default) to %d", maxDeadline.Milliseconds())
	case len(s.Tier) > policyfile.MaxName:
		return refuse("a tier must have at most %d bytes", policyfile.MaxName)
	}
	t.tier = cmp.Or(t.tier, schema.DefaultTier)
	if s.DeadlineMS > 0 {
		t.deadline = time.Duration(s.DeadlineMS) * time.Millisecond
	}
	if s.RateLimitPerMin > 0 {
		t.rate = policy.NewRateLimit(s.RateLimitPerMin, time.Minute)
	}
	var err error
	if t.schema, err = toolschema.Compile(s.Parameters); err != nil {
		return refuse("parameters: %s", jsonrpc.Brief(err))
	}
	return t, nil
}

// take counts a call against the tool's rate limit and takes one of its places, or returns the limit that forbids the
// call.
func (t *tool) take(now time.Duration, dry bool, rate *policy.RateLimit) *schema.CallOutcome {
	if rate != nil {
		if wait, ok := rate.Take(now, dry); !ok {
			ms := (wait + time.Millisecond - 1).Milliseconds()
			return &schema.CallOutcome{Kind: schema.CallRateLimited, RetryAfterMS: schema.Some(ms)}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most > 0 && t.running >= t.most {
		return &schema.CallOutcome{Kind: schema.CallRateLimited, RetryAfterMS: schema.None[int64]()}
	}
	t.running++
	return nil
}

func (t *tool) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}
