package mcp

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
)

const (
	// runTimeout bounds the wait for the run's gateway.
	runTimeout = 10 * time.Second
	// callDeadline is what a proxied tool may take, in milliseconds: the
	// client's patience counts and not ours.
	callDeadline = 24 * 60 * 60 * 1000
	// maxResult is what the run's gateway gets of a result, in bytes.
	maxResult = 1 << 20
)

// Run is a connection to the gateway of the run that the proxy is part of. The
// proxy registers each tool there, proposes each call, and answers with what
// the server answered. A nil Run accepts everything and does nothing, and so
// does one whose gateway went away.
type Run struct {
	source string
	conn   net.Conn

	mu      sync.Mutex
	last    int
	known   map[string]bool
	waiting map[string]chan message // answers by our ids, and callbacks by action id
	gone    chan struct{}
}

// Dial connects to the gateway at a unix socket.
func Dial(socket, source string) (*Run, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("reach the gateway of the run: %w", err)
	}
	r := &Run{source: source, conn: conn, known: map[string]bool{}, waiting: map[string]chan message{}, gone: make(chan struct{})}
	go r.read()
	return r, nil
}

// Close ends the connection.
func (r *Run) Close() {
	if r != nil {
		r.conn.Close()
		<-r.gone
	}
}

func (r *Run) read() {
	defer close(r.gone)
	br := bufio.NewReaderSize(r.conn, 64<<10)
	eachLine(br, func(line []byte) error {
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		key := "answer " + string(m.ID)
		if m.Method == "tools.execute" {
			var p struct {
				ActionID string `json:"action_id"`
			}
			if err := json.Unmarshal(m.Params, &p); err != nil {
				return err
			}
			key = "call " + p.ActionID
		} else if m.Method != "" {
			return nil
		}
		r.mu.Lock()
		ch := r.waiting[key]
		delete(r.waiting, key)
		r.mu.Unlock()
		if ch != nil {
			ch <- m
		}
		return nil
	})
	r.conn.Close()
}

// expect makes a channel that gets the message of a key.
func (r *Run) expect(ch chan message, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[key] = ch
}

func (r *Run) forget(keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		delete(r.waiting, k)
	}
}

func (r *Run) next() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return fmt.Sprint(r.last)
}

func (r *Run) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn.SetWriteDeadline(time.Now().Add(runTimeout))
	_, err = r.conn.Write(append(line, '\n'))
	return err
}

type request struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  any            `json:"params"`
}

// ticket is a call that the run's gateway let go on and waits for: the id of its
// request, and where its answer to our proposal comes.
type ticket struct {
	id     jsontext.Value
	answer <-chan message
}

// propose asks the run's gateway about a call. It returns a ticket for its
// result when the call may go on, or why it may not; nil when there is nobody
// to tell.
func (r *Run) propose(c *toolCall, warn func(string)) (t *ticket, rejection string) {
	if r == nil {
		return nil, ""
	}
	lost := func(err error) (*ticket, string) {
		warn("the gateway of the run is gone, calls are no longer reported to it: " + err.Error())
		return nil, ""
	}
	select {
	case <-r.gone:
		return nil, ""
	default:
	}
	r.mu.Lock()
	known := r.known[c.Name]
	r.known[c.Name] = true
	r.mu.Unlock()
	if !known {
		tools := []any{map[string]any{"name": c.Name, "description": "", "deadline_ms": callDeadline}}
		if err := r.send(request{"2.0", jsontext.Value(r.next()), "tools.register", tools}); err != nil {
			return lost(err)
		}
	}
	id := r.next()
	ch := make(chan message, 2)
	r.expect(ch, "answer "+id)
	r.expect(ch, "call "+id)
	action := map[string]any{"id": id, "type": "tool_call", "tool": c.Name, "tool_call_id": c.id}
	if c.Arguments != nil {
		action["parameters"] = c.Arguments
	}
	err := r.send(request{"2.0", jsontext.Value(id), "proposal.submit", map[string]any{
		"proposal": map[string]any{"id": id, "source": r.source, "actions": []any{action}},
	}})
	if err != nil {
		return lost(err)
	}
	timer := time.NewTimer(runTimeout)
	defer timer.Stop()
	select {
	case m := <-ch:
		if m.Method == "tools.execute" {
			return &ticket{m.ID, ch}, ""
		}
		r.forget("call " + id)
		return nil, rejected(m)
	case <-r.gone:
		return lost(net.ErrClosed)
	case <-timer.C:
		r.forget("answer "+id, "call "+id)
		return nil, "the gateway of the run did not answer in time"
	}
}

// rejected says why the run's gateway did not execute a call.
func rejected(m message) string {
	var failure struct {
		Message string `json:"message"`
	}
	if m.Error != nil && json.Unmarshal(m.Error, &failure) == nil {
		return failure.Message
	}
	var res struct {
		Actions []struct {
			RejectedBy string `json:"rejected_by"`
			Outcome    struct {
				Kind string `json:"kind"`
				Rule string `json:"rule"`
			} `json:"outcome"`
			Violations []policy.Violation `json:"violations"`
		} `json:"actions"`
	}
	if json.Unmarshal(m.Result, &res) != nil || len(res.Actions) != 1 {
		return "the gateway of the run gave no reason"
	}
	a := res.Actions[0]
	if len(a.Violations) > 0 {
		return fmt.Sprintf("rule %q: %s", a.Violations[0].Rule, a.Violations[0].Reason)
	}
	return strings.ReplaceAll(a.Outcome.Kind, "_", " ")
}

type response struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

// finished tells the run's gateway what the server answered, and waits until it
// has recorded that: what the client does next comes after the call.
func (r *Run) finished(t *ticket, m *message) {
	if r == nil || t == nil {
		return
	}
	res := response{JSONRPC: "2.0", ID: t.id, Result: m.Result, Error: m.Error}
	if n := len(m.Result); n > maxResult {
		res.Result = fmt.Appendf(nil, `{"assay_result_left_out":true,"bytes":%d}`, n)
	}
	if r.send(res) != nil {
		return
	}
	timer := time.NewTimer(runTimeout)
	defer timer.Stop()
	select {
	case <-t.answer:
	case <-r.gone:
	case <-timer.C:
	}
}

// denied tells the run's gateway of a call that never got so far.
func (r *Run) denied(c *toolCall, v policy.Violation) {
	if r == nil {
		return
	}
	turn := map[string]any{
		"tool": c.Name, "tool_call_id": c.id,
		"policy_rejected": map[string]any{"rule": v.Rule, "param": v.Param},
	}
	if c.Arguments != nil {
		turn["parameters"] = c.Arguments
	}
	r.send(request{"2.0", jsontext.Value(r.next()), "runs.record_turns", map[string]any{"turns": []any{turn}}})
}
