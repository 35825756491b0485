package model

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
)

func prices(t *testing.T, text string) *modelfile.Prices {
	t.Helper()
	p, err := modelfile.ParsePrices([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const someprices = `version: 1
models:
  - {model: "claude-x*", input: 3, cache_read: 0.3, cache_creation: 3.75, output: 15}
  - {model: "plain", input: 1, output: 2}
  - {model: "*-free", input: 0, output: 0}
`

// limited is an endpoint with a budget.
func limited(t *testing.T, budget string, provider http.HandlerFunc) *gate {
	t.Helper()
	p := prices(t, someprices)
	return newGateWith(t, provider, RecorderConfig{Prices: p}, key, func(c *Config) {
		if err := c.Budget.Set(budget); err != nil {
			t.Fatal(err)
		}
		c.Prices = p
	})
}

// refusals are the errors in the lines, empty if a request was passed on.
func refusals(events []schema.ModelEvent) []string {
	var all []string
	for _, e := range events {
		all = append(all, str(e.Refused))
	}
	return all
}

// TestSpentBudgetIsToldInTheFormOfTheAPI sends one request too many, with each API.
func TestSpentBudgetIsToldInTheFormOfTheAPI(t *testing.T) {
	for _, tt := range []struct{ path, body, form string }{
		{"/anthropic/v1/messages", `{"model":"plain"}`,
			`{"error":{"message":"%s","type":"invalid_request_error"},"type":"error"}`},
		{"/openai/v1/responses", `{"model":"plain"}`,
			`{"error":{"code":null,"message":"%s","param":null,"type":"invalid_request_error"}}`},
		{"/openai/v1/chat/completions", `{"model":"plain"}`,
			`{"error":{"code":null,"message":"%s","param":null,"type":"invalid_request_error"}}`},
		{"/gemini/v1beta/models/plain:generateContent", `{}`,
			`{"error":{"code":400,"message":"%s","status":"INVALID_ARGUMENT"}}`},
	} {
		t.Run(tt.path, func(t *testing.T) {
			asked := 0
			g := limited(t, "requests=1", func(w http.ResponseWriter, r *http.Request) { asked++; tell(w, `{}`) })
			g.ask(g.request("GET", "/openai/v1/models", "")) // costs nothing
			g.ask(g.request("POST", "/anthropic/v1/messages/count_tokens", "{}"))
			select {
			case <-g.Spent():
				t.Error("the budget is spent before it is")
			default:
			}
			if res, _ := g.ask(g.request("POST", tt.path, tt.body)); res.StatusCode != 200 {
				t.Errorf("the first request is answered with %d", res.StatusCode)
			}
			res, body := g.ask(g.request("POST", tt.path, tt.body))
			want := fmt.Sprintf(tt.form, "assay-run: the model budget of this run is spent: 1 of 1 requests; "+
				"a new run can have a larger --model-budget")
			if res.StatusCode != 400 || body != want || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("the second request is answered with %d %s, want 400 %s", res.StatusCode, body, want)
			}
			<-g.Spent()
			if d := cmp.Diff([]string{"", "", "", "budget"}, refusals(g.close())); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
			if asked != 3 || !slices.Equal(g.LimitsHit(), []string{"model_requests"}) {
				t.Errorf("the provider was asked %d times, and limits_hit is %v", asked, g.LimitsHit())
			}
		})
	}
}

// TestTokensAndCostCountWhenAnswered has answers of 32 tokens each, which cost 0.00018885.
func TestTokensAndCostCountWhenAnswered(t *testing.T) {
	for _, tt := range []struct {
		budget, hit string
		passed      int
	}{
		{"tokens=32", "model_tokens", 1},
		{"tokens=33", "model_tokens", 2},
		{"tokens=64", "model_tokens", 2},
		{"cost=0.0001", "model_cost", 1},
		{"cost=0.00037771", "model_cost", 3},
		{"cost=0.0003777", "model_cost", 2},
		{"tokens=1M,cost=0.0001,requests=5", "model_cost", 1},
	} {
		t.Run(tt.budget, func(t *testing.T) {
			g := limited(t, tt.budget, streams(stream))
			passed := 0
			for range 4 {
				// No message says that the last one has ended: the agent reads to message_stop, and asks again at
				// once.
				res, _ := g.ask(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x-1","stream":true}`))
				if res.StatusCode == 200 {
					passed++
				}
			}
			events := g.close()
			if passed != tt.passed || !slices.Equal(g.LimitsHit(), []string{tt.hit}) {
				t.Errorf("%d requests passed, want %d; limits_hit is %v", passed, tt.passed, g.LimitsHit())
			}
			if events[0].Cost == nil || *events[0].Cost != 0.00018885 || events[3].Cost != nil {
				t.Errorf("the costs are %v and %v", events[0].Cost, events[3].Cost)
			}
			totals := g.record.Totals()
			if want := modelfile.Rounded(0.00018885 * float64(passed)); *totals.Cost != want ||
				totals.CostUnknown != 0 ||
				totals.Refused != uint64(4-passed) {
				t.Errorf("totals are %+v with cost %v, want %v", totals, *totals.Cost, want)
			}
		})
	}
}

// TestStreamsThatHaveSaidTheirUsageCount sends a request while the first stream is open: the agent has read
// everything but its end.
func TestStreamsThatHaveSaidTheirUsageCount(t *testing.T) {
	done := make(chan struct{})
	g := limited(t, "tokens=10", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell(w, stream)
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	first, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	if _, err := io.ReadFull(first.Body, make([]byte, len(stream))); err != nil {
		t.Fatal(err)
	}
	if res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`)); res.StatusCode != 400 {
		t.Errorf("the second request is answered with %d %s", res.StatusCode, body)
	}
	close(done)
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Error(err)
	}
}

// TestRequestsInFlightMayExceedTheBudget sends many requests at the same time, before any is answered.
func TestRequestsInFlightMayExceedTheBudget(t *testing.T) {
	const many = 20
	var arrived sync.WaitGroup
	arrived.Add(many)
	g := limited(t, "tokens=1", func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait() // for all: they are in flight at once
		streams(stream)(w, r)
	})
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != 200 {
				t.Errorf("a request is answered with %d", res.StatusCode)
			}
		})
	}
	all.Wait()
	if res, _ := g.ask(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`)); res.StatusCode != 400 {
		t.Errorf("the request after them is answered with %d", res.StatusCode)
	}
}

// TestManyAtOnceDoNotExceedRequests sends more requests than allowed.
func TestManyAtOnceDoNotExceedRequests(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	g := limited(t, "requests=7,tokens=1M", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked++
		mu.Unlock()
		streams(stream)(w, r)
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`))
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	g.close()
	if asked != 7 {
		t.Errorf("%d requests passed, want 7", asked)
	}
}

// TestRequestsOfUnknownUsageAreRefused checks that the refusal says what the agent or the user must do.
func TestRequestsOfUnknownUsageAreRefused(t *testing.T) {
	const chat, embed = "/openai/v1/chat/completions", "/gemini/v1beta/models/plain:embedContent"
	for _, tt := range []struct{ budget, path, body, refused, says string }{
		{"tokens=5", chat, `{"model":"plain","stream":true}`, "usage_unknown",
			"set stream_options.include_usage to true in the agent, or use --model-budget requests=N alone"},
		{"cost=5", chat, `{"model":"plain","stream":true,"stream_options":{"include_usage":false}}`, "usage_unknown",
			"stream_options"},
		{"tokens=5", chat, `{"model":"plain","stream":true,"stream_options":{"include_usage":true}}`, "", ""},
		{"tokens=5", chat, `{"model":"plain"}`, "", ""},
		{"requests=5", chat, `{"model":"plain","stream":true}`, "", ""},
		{"tokens=5", embed, `{}`, "usage_unknown", "answers with embeddings do not say it"},
		{"requests=5", embed, `{}`, "", ""},
		{"tokens=5", "/anthropic/v1/messages", `{`, "usage_unknown", "its body cannot be read"},
		{"tokens=5", "/anthropic/v1/messages", `{"model":"unheard of"}`, "", ""},
		{"cost=5", "/anthropic/v1/messages", `{"model":"unheard of"}`, "price_unknown",
			"no price for the model \\\"unheard of\\\": add it to the file of --model-prices"},
		{"cost=5", "/gemini/v1beta/models/other:streamGenerateContent", `{"model":"plain"}`, "price_unknown", "other"},
		{"cost=5", "/gemini/v1beta/models/plain:streamGenerateContent", `{}`, "", ""},
	} {
		t.Run(tt.budget+tt.path+tt.body, func(t *testing.T) {
			g := limited(t, tt.budget, streams("{}"))
			res, body := g.ask(g.request("POST", tt.path, tt.body))
			status := 200
			if tt.refused != "" {
				status = 400
			}
			if e := g.one(); res.StatusCode != status || str(e.Refused) != tt.refused ||
				!strings.Contains(body, tt.says) {
				t.Errorf("it is answered with %d %s, and refused is %q", res.StatusCode, body, str(e.Refused))
			}
			if len(g.LimitsHit()) != 0 {
				t.Errorf("limits_hit is %v", g.LimitsHit())
			}
		})
	}
}

// TestAgentThatLeavesEarlyDoesNotGetMore closes each connection before the usage comes.
func TestAgentThatLeavesEarlyDoesNotGetMore(t *testing.T) {
	const half = `data: {"type":"message_start","message":{"id":"m","model":"claude-x","usage":{"input_tokens":11}}}` +
		"\n\n"
	gone := make(chan struct{})
	g := limited(t, "tokens=100", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell(w, half)
		<-r.Context().Done()
		close(gone)
	})
	ctx, leave := context.WithCancel(context.Background())
	res, err := g.client.Do(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, len(half))); err != nil {
		t.Fatal(err)
	}
	leave()
	res.Body.Close()
	<-gone
	for line := []byte(nil); !bytes.HasSuffix(line, []byte("\n")); { // until it has been recorded
		time.Sleep(time.Millisecond)
		line, _ = os.ReadFile(filepath.Join(g.rec.Dir, schema.ModelPath))
	}
	if res, body := g.ask(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`)); res.StatusCode != 400 {
		t.Errorf("the next request is answered with %d %s", res.StatusCode, body)
	}
	events := g.close()
	if u := events[0].Usage; *u.InputTokens != 11 || u.OutputTokens != nil || events[0].Cost != nil {
		t.Errorf("the line has the usage %+v and the cost %v", u, events[0].Cost)
	}
	if n := g.record.Totals(); n.UsageUnknown != 1 || n.CostUnknown != 1 || n.Cost != nil {
		t.Errorf("totals are %+v", n)
	}
}

// TestErrorsCostNothing has a provider that is busy, and then works.
func TestErrorsCostNothing(t *testing.T) {
	n := 0
	g := limited(t, "tokens=10", func(w http.ResponseWriter, r *http.Request) {
		if n++; n < 4 {
			w.WriteHeader(429)
			tell(w, `{"type":"error","error":{"type":"rate_limit_error"}}`)
			return
		}
		streams(stream)(w, r)
	})
	var got []int
	for range 5 {
		res, _ := g.ask(g.request("POST", "/anthropic/v1/messages", `{"model":"claude-x"}`))
		got = append(got, res.StatusCode)
	}
	if !slices.Equal(got, []int{429, 429, 429, 200, 400}) {
		t.Errorf("the answers are %v", got)
	}
}
