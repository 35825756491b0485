package gateway

import (
	"sync"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
)

// rates are the rate limits of serve's agents. They apply across an agent's runs and connections.
type rates struct {
	journal *journal // where calls are noted; may be nil

	mu     sync.Mutex
	agents map[string]*policy.Rates
	before map[string]map[string][]time.Duration // calls in an earlier serve, by the marks of agent and limit
}

// of returns the limits of an agent.
func (r *rates) of(agent string) *policy.Rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents == nil {
		r.agents = map[string]*policy.Rates{}
	}
	if r.agents[agent] == nil {
		who := mark(agent)
		before := r.before[who]
		delete(r.before, who)
		r.agents[agent] = policy.NewRates(func(limit string) []time.Duration {
			return before[mark(limit)]
		}, func(limit string, every time.Duration, undo bool) {
			r.journal.add(note{Agent: who, Limit: mark(limit), Every: int64(every), Undo: undo})
		})
	}
	return r.agents[agent]
}

// shared returns a tool's own rate limit. In serve, where runs end, it is shared by all of the agent's tools of that
// name; otherwise it is the registration's.
func (r *rates) shared(run *recording.Run, t *tool) *policy.RateLimit {
	if t.rate == nil || run == nil || !run.Once() {
		return t.rate
	}
	limit, _ := t.rate.Limit()
	return r.of(run.Info().AgentID).Of("tool "+t.name, limit, time.Minute)
}
