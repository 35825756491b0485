package model

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
)

// Budget limits what a run may ask of models. Zero means no limit.
type Budget struct {
	// Requests limits the requests for an answer. They count when they are sent.
	Requests Count `json:"requests,omitzero"`
	// Tokens limits input plus output tokens. They count when the answer has come.
	Tokens Count `json:"tokens,omitzero"`
	// Cost is in the currency of the price list, which it needs.
	Cost float64 `json:"cost,omitzero"`
	// End ends the run when the first request is refused because a limit is reached.
	End bool `json:"end,omitzero"`
}

// Limited reports whether any limit is set.
func (b *Budget) Limited() bool { return b.Requests != 0 || b.Tokens != 0 || b.Cost != 0 }

// measured reports whether the usage in answers must be known.
func (b *Budget) measured() bool { return b.Tokens != 0 || b.Cost != 0 }

// Check returns an error for each invalid limit.
func (b *Budget) Check() error {
	var faults []error
	for _, l := range []struct {
		name string
		n    float64
	}{{"requests", float64(b.Requests)}, {"tokens", float64(b.Tokens)}, {"cost", b.Cost}} {
		if !(l.n >= 0) || math.IsInf(l.n, 0) {
			faults = append(faults, fmt.Errorf("the limit of %s is %v; it must be a number above 0", l.name, l.n))
		}
	}
	return errors.Join(faults...)
}

// String returns the budget in the form that Set reads.
func (b *Budget) String() string {
	var parts []string
	if b.Requests != 0 {
		parts = append(parts, "requests="+b.Requests.String())
	}
	if b.Tokens != 0 {
		parts = append(parts, "tokens="+b.Tokens.String())
	}
	if b.Cost != 0 {
		parts = append(parts, "cost="+strconv.FormatFloat(b.Cost, 'f', -1, 64))
	}
	return strings.Join(parts, ",")
}

func (*Budget) Type() string { return "LIMITS" }

// Set reads limits such as requests=20,tokens=2M,cost=5. It does not change End. The error joins all faults.
func (b *Budget) Set(text string) error {
	now := Budget{End: b.End}
	var faults []error
	given := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "requests":
			err = now.Requests.Set(value)
		case "tokens":
			err = now.Tokens.Set(value)
		case "cost":
			if now.Cost, err = strconv.ParseFloat(value, 64); err != nil || !(now.Cost > 0) || math.IsInf(now.Cost, 0) {
				err = fmt.Errorf("%.40q is not a number above 0", value)
			}
		default:
			err = errors.New("the limits are requests, tokens and cost, as in requests=20,tokens=2M,cost=5")
		}
		if err == nil && given[name] {
			err = errors.New("it is given twice")
		}
		given[name] = true
		if err != nil {
			faults = append(faults, fmt.Errorf("%.40q: %w", name, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	*b = now
	return nil
}

// Count is a number that may be written with a decimal suffix: 20, 500k, 1.5M or 1G.
type Count int64

var countUnits = []struct {
	suffix string
	size   float64
}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}}

func (c Count) String() string { return strconv.FormatInt(int64(c), 10) }

// Set reads a count of at least 1.
func (c *Count) Set(text string) error {
	digits, size := text, 1.0
	for _, u := range countUnits {
		if d, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, size = d, u.size
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if n *= size; err != nil || !(n >= 1 && n <= 1e15) || n != math.Trunc(n) ||
		strings.Trim(digits, "0123456789.") != "" {
		return fmt.Errorf("%.40q is not a whole number above 0, such as 20, 500k or 2M", text)
	}
	*c = Count(n)
	return nil
}

// UnmarshalJSON accepts a number or a string.
func (c *Count) UnmarshalJSON(b []byte) error { return c.Set(string(bytes.Trim(b, `"`))) }

// purse tracks what is left of a budget. A nil purse has no limit.
type purse struct {
	limit  Budget
	prices *Prices
	over   chan struct{} // closed when a limit has stopped a request

	mu       sync.Mutex
	requests int64
	tokens   int64
	cost     float64
	open     map[*exchange]string // sent and not counted yet, with the requested model
	hit      []string             // limits that stopped a request, as in limits_hit
}

func newPurse(limit Budget, prices *Prices) *purse {
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
	if p.limit.measured() {
		if why := unmeasured(x, q); why != "" {
			return &refusal{schema.ModelRefusedUsage, "this run has a budget of tokens or cost, and it would stay " +
				"unknown what this request uses: " + why + ", or use --model-budget requests=N alone",
				http.StatusBadRequest}
		}
	}
	if p.limit.Cost != 0 && p.prices.of(q.Model) == nil {
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
	if p.limit.measured() {
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
	if price := p.prices.of(models...); price != nil {
		cost = rounded(cost + price.known(u))
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
