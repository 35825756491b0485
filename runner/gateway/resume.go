package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// remember imports what an earlier gateway left in a journal.
func (g *Gateway) remember(path string) error {
	j, notes, err := openJournal(path, g.warn)
	if err == errInUse {
		g.warn(path + ": " + err.Error() + ", so the next restart will lose idempotency keys and rate limits")
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	g.runs.journal, g.rates.journal = j, j
	g.runs.past, g.rates.before = map[string]note{}, map[string]map[string][]time.Duration{}
	now, wall := g.cfg.Now(), time.Now().UnixNano()
	for _, n := range notes {
		if n.Run != "" {
			g.runs.past[n.Run] = n
			continue
		}
		if g.rates.before[n.Agent] == nil {
			g.rates.before[n.Agent] = map[string][]time.Duration{}
		}
		at := now - time.Duration(max(wall-n.At, 0))
		g.rates.before[n.Agent][n.Limit] = append(g.rates.before[n.Agent][n.Limit], at)
	}
	return nil
}

// earlier is a run of an earlier gateway that was not resumed here.
func (r *runs) earlier(id string) (note, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.past[id]
	return n, ok
}

// pastKey is the run that a key opened in an earlier gateway, if it was not resumed
// here. The caller holds r.mu.
func (r *runs) pastKey(key string) note {
	for _, n := range r.past {
		if key != "" && n.Key == key {
			return n
		}
	}
	return note{}
}

// Resume continues a run that an earlier gateway left open, from its layers and
// documents in dir; elapsed is the time since the run's start. Serve calls it before
// Listen. From Listen on, the run's clients have the grace time to return. If Resume
// returns an error, the gateway does not have the run.
func (g *Gateway) Resume(to Recording, dir string, elapsed time.Duration) error {
	past := g.runs.past[to.RunID]
	var start schema.GatewaySession
	if err := recording.Document(dir, schema.SessionPath, &start); err != nil {
		return err
	}
	zero := g.cfg.Now() - elapsed
	rules := policy.NewSet(g.cfg.Policy).Shared(g.rates.of(start.AgentID))
	run, lost, err := recording.Resume(to, g.options(zero, rules), past.Key, dir)
	if err != nil {
		return err
	}
	for _, l := range lost {
		if err := g.recordLost(run, l, elapsed); err != nil {
			return err
		}
	}
	g.runs.add(run, past.Key)
	delete(g.runs.past, run.ID)
	run.Attach() // until clients can come
	g.resumed = append(g.resumed, run)
	return nil
}

// await waits for the clients of the resumed runs.
func (g *Gateway) await() {
	g.mu.Lock()
	runs := g.resumed
	g.resumed = nil
	g.mu.Unlock()
	for _, run := range runs {
		run.Detach(g.cfg.Limits.Grace, func() { g.abandon(run) })
	}
}

// recordLost ends a call that was in flight when the recorder died. Nobody knows
// whether the tool ran.
func (g *Gateway) recordLost(run *recording.Run, l recording.Lost, now time.Duration) error {
	outcome := failedWith(schema.FailCallbackLost, true)
	if !l.Turn {
		_, err := run.Record([]schema.TurnBody{{
			Tool: l.Tool, VerifierVerdict: schema.VerdictNotRun, Error: outcome.Code, Source: "gateway", ToolCallID: l.ToolCallID,
			TStartNS: int64(l.TNS), TEndNS: int64(now),
		}})
		if err != nil {
			return err
		}
	}
	run.State.Set("last_tool", l.Tool)
	run.State.Ended(l.Tool, &outcome, schema.VerdictNotRun)
	return g.audit(run, &schema.CallEventBody{
		CallID: schema.NewID(), ToolID: l.Tool, ToolCallID: l.ToolCallID, DurationMS: float64((now - l.TNS).Milliseconds()), DurationUS: (now - l.TNS).Microseconds(),
		Outcome: outcome, Tier: schema.DefaultTier,
	})
}

// Suspend ends the gateway as Close does, but leaves open runs to a later gateway's
// Resume.
func (g *Gateway) Suspend(ctx context.Context) error {
	g.closing.Do(func() {
		g.suspend = true
		g.result = g.close(ctx)
	})
	return g.result
}
