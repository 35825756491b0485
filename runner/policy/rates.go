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
	note   func(limit string, every time.Duration, undo bool)
	mu     sync.Mutex
	limits map[string]*RateLimit
	before func(limit string) []time.Duration
}

// NewRates has none yet. Its limits begin with the calls of before, in order, and tell
// note of each call that they count or take back.
func NewRates(before func(limit string) []time.Duration,
	note func(limit string, every time.Duration, undo bool)) *Rates {
	return &Rates{note: note, limits: map[string]*RateLimit{}, before: before}
}

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
		l.times = r.before(key)
		l.note = func(undo bool) { r.note(key, every, undo) }
	}
	return l
}

// Shared is a set of the same rules whose rate limits are those of rates.
func (s *Set) Shared(rates *Rates) *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := &Set{file: s.file, tools: s.tools, rates: rates}
	rules := make([]*rule, len(*s.rules.Load()))
	for i, r := range *s.rules.Load() {
		own := *r
		shared.share(&own)
		rules[i] = &own
	}
	shared.rules.Store(&rules)
	return shared
}

// share makes a rule's limit one of those that the set shares.
func (s *Set) share(r *rule) {
	if s.rates != nil && r.rate != nil {
		r.rate = s.rates.Of("rule "+r.Name+" "+r.Target, r.rate.limit, r.rate.every)
	}
}
