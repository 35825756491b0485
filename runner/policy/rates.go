package policy

import (
	"fmt"
	"sync"
	"time"
)

// maxRates bounds the rate limits that are shared.
const maxRates = 4096

// Rates are rate limits that several sets share, by name. They are safe for
// concurrent use.
type Rates struct {
	mu     sync.Mutex
	limits map[string]*RateLimit
}

// NewRates has none yet.
func NewRates() *Rates { return &Rates{limits: map[string]*RateLimit{}} }

// Of is the limit of a name; another count or window is another limit.
func (r *Rates) Of(name string, limit int, every time.Duration) *RateLimit {
	key := fmt.Sprintf("%d/%d %s", limit, every, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.limits[key]; l != nil {
		return l
	}
	l := NewRateLimit(limit, every)
	if len(r.limits) < maxRates {
		r.limits[key] = l
	}
	return l
}

// Shared is a set of the same rules whose rate limits are those of rates.
func (s *Set) Shared(rates *Rates) *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := &Set{file: s.file, tools: s.tools}
	rules := make([]*rule, len(*s.rules.Load()))
	for i, r := range *s.rules.Load() {
		own := *r
		if own.rate != nil {
			own.rate = rates.Of("rule "+own.Name+" "+own.Target, own.rate.limit, own.rate.every)
		}
		rules[i] = &own
	}
	shared.rules.Store(&rules)
	return shared
}
