package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

const (
	// runTimeout limits the wait for the run's gateway.
	runTimeout = 10 * time.Second
	// callDeadline is how long a proxied tool may take, in milliseconds. It is long because the client decides when
	// to give up.
	callDeadline = 24 * 60 * 60 * 1000
)

// Run is a connection to the gateway of the run that the proxy is part of. The proxy registers each tool there,
// proposes each call, and answers with the server's answer. A nil Run accepts everything and does nothing. So does a
// Run whose gateway is gone.
type Run struct {
	source string
	conn   net.Conn

	mu      sync.Mutex
	last    int
	known   map[string]bool
	waiting map[string]chan *jsonrpc.Message // answers by request id, and callbacks by action id
	gone    chan struct{}
}

// Dial connects to the gateway at a unix socket.
func Dial(socket, source string) (*Run, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the run's gateway: %w", err)
	}
	r := &Run{source: source, conn: conn, known: map[string]bool{}, waiting: map[string]chan *jsonrpc.Message{},
		gone: make(chan struct{})}
	go r.read()
	r.own()
	return r, nil
}

// own tells the gateway that only this process and the servers that it starts execute the calls, and waits for the
// answer. A gateway that cannot tell them from other processes refuses.
func (r *Run) own() {
	id := r.next()
	ch := make(chan *jsonrpc.Message, 1)
	r.expect(ch, "answer "+id)
	if r.request(id, "calls.own", struct{}{}) != nil {
		return
	}
	r.await(&ticket{answer: ch})
	r.forget("answer " + id)
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
		m, err := jsonrpc.Decode(bytes.Clone(line))
		if err != nil {
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

// expect returns a channel that gets the message with this key.
func (r *Run) expect(ch chan *jsonrpc.Message, key string) {
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

// errLimits is wrapped by errors of send for a message above the gateway's limits. It was not sent, since the gateway
// might have closed the connection.
var errLimits = errors.New("the run's gateway would refuse the message")

func (r *Run) send(line []byte) error {
	if err := jsonrpc.CheckMessage(line); err != nil {
		return fmt.Errorf("%w: %w", errLimits, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn.SetWriteDeadline(time.Now().Add(runTimeout))
	_, err := r.conn.Write(append(line, '\n'))
	return err
}

// request sends a request. Its answer carries the same id.
func (r *Run) request(id, method string, params any) error {
	line, err := jsonrpc.AppendRequest(nil, jsontext.Value(id), method, params)
	if err != nil {
		return err
	}
	return r.send(line)
}

// answer answers a request of the gateway, with a result or a failure.
func (r *Run) answer(id, result, failure jsontext.Value) error {
	if failure != nil {
		return r.send(jsonrpc.AppendError(nil, id, failure))
	}
	return r.send(jsonrpc.AppendResult(nil, id, result))
}

// ticket is a call that the run's gateway has allowed and waits for: the id of the gateway's request, and the channel
// for its answer to the proposal.
type ticket struct {
	id       jsontext.Value
	proposal string // its id
	answer   <-chan *jsonrpc.Message
}

// propose asks the run's gateway about a call. It returns a ticket for the result if the call may go on, and
// otherwise why not. The ticket is nil if there is no gateway.
func (r *Run) propose(c *toolCall, warn func(string)) (t *ticket, rejection string) {
	if r == nil {
		return nil, ""
	}
	lost := func(err error) (*ticket, string) {
		warn("the run's gateway is gone: later calls are checked but not recorded in the run: " + err.Error())
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
		if err := r.request(r.next(), "tools.register", tools); err != nil {
			return lost(err)
		}
	}
	id := r.next()
	ch := make(chan *jsonrpc.Message, 2)
	r.expect(ch, "answer "+id)
	r.expect(ch, "call "+id)
	switch err := r.submit(id, c, nil); {
	case errors.Is(err, errLimits):
		r.forget("answer "+id, "call "+id)
		refused := *c // this decision is in no log
		refused.logged = false
		r.denied(&refused, policy.Violation{Rule: limitsRule})
		return nil, err.Error()
	case err != nil:
		return lost(err)
	}
	timer := time.NewTimer(runTimeout)
	defer timer.Stop()
	select {
	case m := <-ch:
		if m.Method == "tools.execute" {
			return &ticket{m.ID, id, ch}, ""
		}
		r.forget("call " + id)
		return nil, rejected(m)
	case <-r.gone:
		return lost(net.ErrClosed)
	case <-timer.C:
		r.forget("answer "+id, "call "+id)
		return nil, "the run's gateway did not answer within 10s"
	}
}

// finished reports the server's answer to the run's gateway, and waits until it is recorded, so that what the client
// does next comes after the call.
func (r *Run) finished(t *ticket, m *jsonrpc.Message) {
	if r == nil || t == nil {
		return
	}
	err := r.answer(t.id, m.Result, m.Error)
	if errors.Is(err, errLimits) {
		result, failure := leftOut(m.Result), jsontext.Value(nil)
		if m.Error != nil {
			result, failure = nil, leftOut(m.Error)
		}
		err = r.answer(t.id, result, failure)
	}
	if err == nil {
		r.await(t)
	}
}

// cancelled tells the run's gateway that nobody waits for a call any more.
func (r *Run) cancelled(t *ticket) {
	if r == nil || t == nil {
		return
	}
	params := map[string]any{"id": jsontext.Value(t.proposal)}
	if r.request(r.next(), "$/cancelRequest", params) == nil {
		r.await(t)
	}
}

// await waits until the run's gateway has recorded a call.
func (r *Run) await(t *ticket) {
	timer := time.NewTimer(runTimeout)
	defer timer.Stop()
	select {
	case <-t.answer:
	case <-r.gone:
	case <-timer.C:
	}
}

// denied tells the run's gateway about a call that was denied before it was proposed.
func (r *Run) denied(c *toolCall, v policy.Violation) {
	if r == nil {
		return
	}
	rejected := &schema.PolicyRejected{Rule: v.Rule, Param: v.Param}
	if errors.Is(r.submit(r.next(), c, rejected), errLimits) {
		short := *c
		short.Arguments = fmt.Appendf(nil, `{"assay_arguments_left_out":true,"bytes":%d}`, len(c.Arguments))
		_ = r.submit(r.next(), &short, rejected)
	}
}

// limitsRule is the rule that denies what is too large for the run's gateway.
const limitsRule = "gateway.limits"

type action struct {
	ID         string                 `json:"id"`
	Type       string                 `json:"type"`
	Tool       string                 `json:"tool"`
	ToolCallID string                 `json:"tool_call_id"`
	Parameters jsontext.Value         `json:"parameters,omitzero"`
	Denied     *schema.PolicyRejected `json:"denied,omitzero"`
	Allowed    bool                   `json:"allowed,omitzero"`
	Logged     bool                   `json:"logged,omitzero"`
}

// submit proposes a call to the run's gateway, or reports that the proxy's policy denied it. Its errors are those of
// send.
func (r *Run) submit(id string, c *toolCall, denied *schema.PolicyRejected) error {
	a := action{
		ID: id, Type: "tool_call", Tool: c.Name, ToolCallID: c.id, Parameters: c.Arguments,
		Denied: denied, Allowed: denied == nil, Logged: c.logged,
	}
	return r.request(id, "proposal.submit", map[string]any{
		"proposal": map[string]any{"id": id, "source": r.source, "actions": []action{a}},
	})
}

// rejected returns why the run's gateway did not execute a call.
func rejected(m *jsonrpc.Message) string {
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
		return "the run's gateway gave no reason"
	}
	a := res.Actions[0]
	if len(a.Violations) > 0 {
		return fmt.Sprintf("rule %q: %s", a.Violations[0].Rule, a.Violations[0].Reason)
	}
	return strings.ReplaceAll(a.Outcome.Kind, "_", " ")
}

// maxPart is how much of the start and of the end of an oversized result the run's gateway gets, in bytes.
const maxPart = 8 << 10

// leftOut stands for an oversized result. It has the result's start and end.
func leftOut(result []byte) []byte {
	part := func(b []byte) []byte {
		text, _ := json.Marshal(strings.ToValidUTF8(string(b), "\ufffd"))
		return text
	}
	head, tail := result[:min(len(result), maxPart)], result[max(0, len(result)-maxPart):]
	var says struct {
		IsError bool `json:"isError"`
		errorCode
		Data errorCode `json:"data"`
	}
	_ = json.Unmarshal(result, &says)
	data, _ := json.Marshal(says.Data.or(says.errorCode))
	return fmt.Appendf(nil, schema.ResultLeftOut+`"bytes":%d,"isError":%t,"data":%s,"head":%s,"tail":%s}`, len(result),
		says.IsError, data, part(head), part(tail))
}

// errorCode is an error's own code, and whether a retry may help.
type errorCode struct {
	Code      jsontext.Value `json:"code,omitzero"`
	Retryable jsontext.Value `json:"retryable,omitzero"`
}

// or returns e, with o's values for those that e lacks.
func (e errorCode) or(o errorCode) errorCode {
	useful := func(v, w jsontext.Value) jsontext.Value {
		for _, v := range []jsontext.Value{v, w} {
			if v != nil && len(v) <= 256 {
				return v
			}
		}
		return nil
	}
	return errorCode{useful(e.Code, o.Code), useful(e.Retryable, o.Retryable)}
}
