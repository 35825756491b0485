package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/schema"
)

func TestAClientThatVanishesLeavesItsRunIncompleteAfterTheGraceTime(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Grace = 50 * time.Millisecond })
	watcher := dial(t, f.path)
	state := func() string {
		var r struct {
			Runs []runInfo `json:"runs"`
		}
		if err := json.Unmarshal([]byte(watcher.must("runs.list", "{}")), &r); err != nil {
			t.Fatal(err)
		}
		return r.Runs[0].State
	}
	a := dial(t, f.path)
	a.must("runs.start", `{"agent_id":"a","intent":""}`)
	a.conn.Close()
	<-a.gone
	time.Sleep(100 * time.Millisecond)
	if got := state(); got != recording.Open {
		t.Errorf("with a client left, the run is %s", got)
	}
	watcher.conn.Close()
	<-watcher.gone
	deadline := time.Now().Add(time.Minute)
	for f.run.Info().State != recording.Incomplete {
		if time.Now().After(deadline) {
			t.Fatalf("the run is %s", f.run.Info().State)
		}
		time.Sleep(time.Millisecond)
	}
	// It may come back to the run's own recording.
	b := dial(t, f.path)
	b.must("runs.start", `{"agent_id":"a","intent":"back"}`)
	b.must("runs.record_turns", `{"turns":[{"tool":"x"}]}`)
	f.end(t)
	var s schema.GatewaySession
	readDocument(t, f.rec, schema.SessionPath, &s)
	if s.State != recording.Incomplete || s.Intent != "back" || s.Turns != 1 {
		t.Errorf("session %+v", s)
	}
}

// What a client sent before it left counts, even if its connection was not accepted yet.
func TestCloseTakesWhatDeadClientsSent(t *testing.T) {
	for range 20 {
		f := start(t, nil)
		c := dial(t, f.path)
		c.must("runs.start", `{"agent_id":"a","intent":""}`)
		for range 20 {
			conn, err := net.Dial("unix", f.path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"runs.record_turns","params":{"turns":[{"tool":"x"}]}}`+
				"\n")
			conn.Close()
		}
		c.conn.Close()
		f.end(t)
		if got := f.rec.Lines(t, schema.TurnsPath); len(got) != 20 {
			t.Fatalf("%d turns, want 20", len(got))
		}
	}
}

func TestCloseCancelsCallsAndTellsTheirClients(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.DrainTimeout = time.Millisecond })
	c := dial(t, f.path)
	entered := make(chan struct{})
	c.tool = func(toolsExecute) (string, string) { close(entered); return "", "" }
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t"}]`)
	answer := c.start("proposal.submit", oneCall("t", "{}"))
	<-entered
	f.end(t)
	r, err := c.wait(answer)
	if err != nil || c.outcome(r).Outcome.Code != schema.FailCancelled {
		t.Errorf("%s, %v", r, err)
	}
	if got := f.rec.Lines(t, schema.TurnsPath); len(got) != 1 {
		t.Errorf("%d turns, want 1", len(got))
	}
	if _, err := net.Dial("unix", f.path); err == nil {
		t.Error("the socket is still there")
	}
}

func TestNothingIsCalledOnceItCannotBeRecorded(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	ran := 0
	c.tool = func(toolsExecute) (string, string) { ran++; return "1", "" }
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t"}]`)
	c.submit("t", "{}")
	f.rec.Fail(errors.New("disk full"))
	for i := range 3 {
		if _, err := c.call("proposal.submit", oneCall("t", "{}")); err == nil || err.Code != codeNotRecorded ||
			i > 0 && !strings.Contains(err.Message, "nothing was called") {
			t.Fatalf("error %v, want not recorded", err)
		}
		if _, err := c.call("runs.record_turns", `{"turns":[{"tool":"x"}]}`); err == nil ||
			err.Code != codeNotRecorded {
			t.Fatalf("error %v, want not recorded", err)
		}
	}
	if ran != 1 {
		t.Errorf("the tool ran %d times, want once", ran)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Close(ctx); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Close says %v", err)
	}
}

func TestCompletingWaitsForTheCallsInFlight(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	entered, release := make(chan struct{}), make(chan struct{})
	c.tool = func(toolsExecute) (string, string) { close(entered); <-release; return "1", "" }
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t"}]`)
	call := c.start("proposal.submit", oneCall("t", "{}"))
	<-entered
	end := c.start("runs.complete", `{"outcome":"success"}`)
	for f.run.Info().State != recording.Closing {
		time.Sleep(time.Millisecond)
	}
	close(release)
	r, err := c.wait(call)
	if err != nil || !c.outcome(r).Recorded {
		t.Errorf("%s, %v", r, err)
	}
	if r, err := c.wait(end); err != nil || !strings.Contains(r, `"turns":1`) {
		t.Errorf("runs.complete: %s, %v", r, err)
	}
	if got := f.rec.Lines(t, schema.TurnsPath); len(got) != 1 {
		t.Errorf("%d turns", len(got))
	}
}

// An outcome is a word or an object. Both are recorded, and the rest of what a client said at the start is listed.
func TestAnOutcomeMayBeAnObject(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	c.must("runs.start", `{"agent_id":"a","intent":"","outcome_description":"tests pass"}`)
	if list := c.must("runs.list", "{}"); !strings.Contains(list, `"outcome_description":"tests pass"`) {
		t.Errorf("listed: %s", list)
	}
	for bad, want := range map[string]string{
		`{"summary":"x"}`:               "params/outcome/status: must have 1 to",
		`{"status":"x","more":1}`:       "params/outcome/more: unknown key",
		`7`:                             "params/outcome: must be a string, or an object",
		`""`:                            "params/outcome: must have 1 to",
		`{"status":"x","summary":3}`:    "params/outcome: ",
		`{"status":"x","timestamp":{}}`: "params/outcome/timestamp: must be a string or a number",
	} {
		if _, err := c.call("runs.complete", `{"outcome":`+bad+`}`); err == nil ||
			!strings.Contains(err.Message, want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	const said = `{"status":"success","summary":"all green","evidence":["a.log"],"metrics":{"passed":3},"timestamp":"2026-01-02T03:04:05Z"}`
	if r := c.must("runs.complete", `{"outcome":`+said+`}`); !strings.Contains(r, `"outcome":"success"`) {
		t.Errorf("answered %s", r)
	}
	f.end(t)
	var s schema.GatewaySession
	doc, err := os.ReadFile(filepath.Join(f.rec.Dir, schema.SessionPath))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.GatewaySessionV0, doc); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(doc, &s); err != nil {
		t.Fatal(err)
	}
	r := s.OutcomeReport
	if s.Outcome != "success" || r == nil || r.Summary != "all green" ||
		!strings.Contains(string(r.Evidence), "a.log") || !strings.Contains(string(r.Metrics), "3") {
		t.Errorf("recorded %s", doc)
	}
}
