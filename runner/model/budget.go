package model

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
)

// purse tracks what is left of a budget. A nil purse has no limit.
type purse struct {
	limit  modelfile.Budget
	prices *modelfile.Prices
	over   chan struct{} // closed when a limit has stopped a request

	mu       sync.Mutex
	requests int64
	tokens   int64
	cost     float64
	open     map[*exchange]string // sent and not counted yet, with the requested model
	hit      []string             // limits that stopped a request, as in limits_hit
}

func newPurse(limit modelfile.Budget, prices *modelfile.Prices) *purse {
	if !limit.Limited() {
		return nil
	}
	return &purse{limit: limit, prices: prices, over: make(chan struct{}), open: map[*exchange]string{}}
}

// counts reports whether requests to an API count against a budget: those that make a model work.
func counts(api wire.API) bool { return api.Generates() || api == wire.EmbedContent }

// refusal is why a request is not passed on.
type refusal struct {
	word, message string
	status        int
}

// admit counts a request that is about to be sent, or returns why it is refused. q is the decoded request.
func (p *purse) admit(x *exchange, q *wire.Request) *refusal {
	if p == nil || !counts(x.api) {
		return nil
	}
	if p.limit.Measured() {
		if why := unmeasured(x, q); why != "" {
			return &refusal{schema.ModelRefusedUsage, "this run has a budget of tokens or cost, and it would stay " +
				"unknown what this request uses: " + why + ", or use --model-budget requests=N alone",
				http.StatusBadRequest}
		}
	}
	if p.limit.Cost != 0 && p.prices.Of(q.Model) == nil {
		return &refusal{schema.ModelRefusedPrice, fmt.Sprintf("this run has a budget of cost, and the price list has "+
			"no price for the model %.200q: add it to the file of --model-prices", q.Model),
			http.StatusBadRequest}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tokens, cost := p.spent()
	for _, l := range []struct {
		name, unit  string
		used, limit float64
	}{
		{schema.LimitModelRequests, "requests", float64(p.requests), float64(p.limit.Requests)},
		{schema.LimitModelTokens, "tokens", float64(tokens), float64(p.limit.Tokens)},
		{schema.LimitModelCost, "cost", cost, p.limit.Cost},
	} {
		if l.limit == 0 || l.used < l.limit {
			continue
		}
		if len(p.hit) == 0 {
			close(p.over)
		}
		if !slices.Contains(p.hit, l.name) {
			p.hit = append(p.hit, l.name)
		}
		number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
		return &refusal{schema.ModelRefusedBudget, fmt.Sprintf("the model budget of this run is spent: %s of %s %s; "+
			"a new run can have a larger --model-budget", number(l.used), number(l.limit), l.unit),
			http.StatusBadRequest}
	}
	p.requests++
	if p.limit.Measured() {
		p.open[x] = q.Model
	}
	return nil
}

// unmeasured returns what to do about a request whose answer would not tell its usage; empty: it will.
func unmeasured(x *exchange, q *wire.Request) string {
	switch {
	case x.api == wire.EmbedContent:
		return "answers with embeddings do not say it"
	case !q.Readable:
		return "its body cannot be read; send JSON, without a content encoding or with gzip or zstd"
	case x.api == wire.ChatCompletions && q.Stream && !q.IncludeUsage:
		return "set stream_options.include_usage to true in the agent"
	}
	return ""
}

// spent returns the usage so far, including what unfinished answers have reported.
func (p *purse) spent() (tokens int64, cost float64) {
	var some []func()
	for x, asked := range p.open {
		u, answered, ended := x.usage()
		if ended {
			p.close(x, &u, answered)
			continue
		}
		some = append(some, func() { tokens, cost = p.add(tokens, cost, &u, answered, asked) })
	}
	tokens, cost = p.tokens, p.cost
	for _, add := range some {
		add()
	}
	return tokens, cost
}

func (p *purse) add(tokens int64, cost float64, u *schema.ModelUsage, models ...string) (int64, float64) {
	for _, n := range []*int64{u.InputTokens, u.OutputTokens} {
		if n != nil {
			tokens = saturated(tokens, *n)
		}
	}
	if price := p.prices.Of(models...); price != nil {
		cost = modelfile.Rounded(cost + price.Known(u))
	}
	return tokens, cost
}

// settle counts the usage of an answer that has ended. answered is the model that gave it.
func (p *purse) settle(x *exchange, u *schema.ModelUsage, answered string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(x, u, answered)
}

func (p *purse) close(x *exchange, u *schema.ModelUsage, answered string) {
	if asked, ok := p.open[x]; ok {
		delete(p.open, x)
		p.tokens, p.cost = p.add(p.tokens, p.cost, x.charged(u), answered, asked)
	}
}

// limitsHit returns the limits that stopped requests.
func (p *purse) limitsHit() []string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.hit)
}
