package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

// Config configures a Proxy.
type Config struct {
	// Rules apply to every request of the client and the server. Several proxies can share them. Nil forbids nothing.
	Rules *Rules
	// Decisions gets one line per decision, in one write. Nil discards them. A call is denied if its decision cannot
	// be written.
	Decisions io.Writer
	// Logged means that the run reads what is written to Decisions.
	Logged bool
	// Source is the source of the decision events, a URI.
	Source string
	// Run, if set, is the connection to the gateway of the run that the proxy is part of.
	Run *Run
	// Warn, if set, is called with warnings for the operator.
	Warn func(message string)
}

// Rules are a policy in force, and the tools as they were first listed. They are safe for concurrent use.
type Rules struct {
	set   *policy.Set
	began time.Time
	pins  pins
}

// NewRules puts a policy in force. A nil file forbids nothing. With changes, a tool may be called even if it has
// changed since it was first listed.
func NewRules(file *policyfile.File, changes bool) *Rules {
	return &Rules{set: policy.NewSet(file), began: time.Now(), pins: pins{off: changes}}
}

// Proxy relays between one client and one server.
type Proxy struct {
	cfg   Config
	rules *Rules

	toClient, toServer lockedWriter

	mu      sync.Mutex
	pending map[string]*pending // the client's requests without an answer, by id
}

// New returns a proxy.
func New(cfg Config) *Proxy {
	if cfg.Rules == nil {
		cfg.Rules = NewRules(nil, false)
	}
	return &Proxy{cfg: cfg, rules: cfg.Rules, pending: map[string]*pending{}}
}

// Relay relays until the server closes its output. When the client has closed its output, Relay closes the server's
// input and relays the server's remaining output. A server that then writes nothing for ten seconds and does not end
// is ended.
func (p *Proxy) Relay(clientIn io.Reader, clientOut io.Writer, server *Server) error {
	p.connect(clientOut, server)
	return p.relay(clientIn, server)
}

// connect sets where lines are written, each in one write. After connect, fromClient can be called.
func (p *Proxy) connect(clientOut io.Writer, server *Server) {
	p.toClient.w, p.toServer.w = clientOut, server.In
}

func (p *Proxy) relay(clientIn io.Reader, server *Server) error {
	alive := make(chan struct{}, 1)
	done := make(chan struct{})
	defer close(done)
	go func() {
		if err := eachLine(clientIn, p.clientLine); err != nil {
			p.warn("read from the client: " + err.Error())
			// if the client is still there
			p.toClient.line(errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: "+err.Error(), nil))
		}
		server.In.Close()
		for quiet := false; !quiet; {
			select {
			case <-alive:
			case <-done:
				return
			case <-time.After(quietGrace):
				quiet = !p.waiting()
			}
		}
		server.Close()
	}()
	err := eachLine(server.Out, func(line []byte) error {
		select {
		case alive <- struct{}{}:
		default:
		}
		return p.fromServer(line)
	})
	if err != nil {
		return fmt.Errorf("read from the MCP server: %w", err)
	}
	return nil
}

// clientLine handles one line of the client.
func (p *Proxy) clientLine(line []byte) error {
	list, batch, err := read(line)
	if err != nil {
		toClient, toServer := unreadable(line, err)
		return errors.Join(p.toClient.line(toClient), p.toServer.line(toServer))
	}
	return p.fromClient(line, list, batch)
}

// fromClient handles the messages of one line of the client.
func (p *Proxy) fromClient(line []byte, list []incoming, batch bool) error {
	if batch && len(list) == 0 {
		return p.toClient.line(errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: a batch must not be empty",
			nil))
	}
	b := &answers{}
	var kept []jsontext.Value
	for _, one := range list {
		answer, pass := p.check(one, b)
		if pass {
			kept = append(kept, one.raw)
		} else if answer != nil {
			b.denied = append(b.denied, answer)
		}
	}
	switch {
	case !batch && len(kept) == 0:
		if len(b.denied) > 0 {
			return p.toClient.line(b.denied[0])
		}
		return nil
	case !batch:
		return p.toServer.line(line)
	}
	if answer := b.rest(&p.mu, 0); answer != nil {
		if err := p.toClient.line(answer); err != nil {
			return err
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case len(list):
		return p.toServer.line(line)
	}
	return p.toServer.line(jsonrpc.Join(kept))
}

// check reports whether a message of the client may reach the server. If not, answer is what the client gets instead.
func (p *Proxy) check(one incoming, b *answers) (answer []byte, pass bool) {
	m := one.Message
	if one.err != nil {
		id, response := jsonrpc.IDOf(one.raw)
		if response {
			id = nil // of a request of the server
		}
		return errorResponse(id, jsonrpc.CodeInvalidRequest, "assay-run: "+one.err.Error(), nil), false
	}
	if m.Method == "" {
		return nil, true // an answer to the server
	}
	if m.Method == "notifications/cancelled" {
		p.cancelled(m)
	}
	r := &pending{method: m.Method, batch: b}
	if answer, ok := p.expect(m, r); !ok {
		return answer, false
	}
	if m.Method == "tools/call" {
		answer, pass = p.call(m, r)
	} else {
		answer, pass = p.access(m)
	}
	if !pass {
		p.take(m.ID)
	} else if m.ID != nil {
		b.open++
	}
	return answer, pass
}

// fromServer handles one line of the server.
func (p *Proxy) fromServer(line []byte) error {
	list, batch, err := read(line)
	if err != nil {
		return p.garbled(line, err)
	}
	var kept []jsontext.Value
	var extra []byte
	changed := false
	for _, in := range list {
		one, m := in.raw, in.Message
		if in.err != nil {
			changed = true
			if err := p.garbled(one, in.err); err != nil {
				return err
			}
			continue
		}
		switch {
		case m.Method != "":
			if answer, pass := p.serverAsks(m); !pass {
				changed = true
				if err := p.toServer.line(answer); err != nil {
					return err
				}
				continue
			}
		case m.ID != nil || m.Result != nil:
			r := p.answered(m.ID)
			if r == nil {
				if m.Result == nil && m.ID.Kind() == 'n' {
					break // an error for a message whose id the server could not read
				}
				// A lax client could take it for the answer to another request.
				p.warn("the MCP server answered a request that is not in flight; the answer was not passed on")
				changed = true
				continue
			}
			if jsonrpc.IDKey(m.ID) != jsonrpc.IDKey(r.id) {
				one, changed = withID(one, r.id), true
			}
			if answer, pass := p.inputs(r.id, m.Result); !pass {
				one, changed = answer, true
				m, _ = jsonrpc.Decode(one)
			}
			if filtered, ok := p.filter(r.method, one, m.Result); ok {
				one, changed = filtered, true
			}
			if r.ticket != nil {
				p.cfg.Run.finished(r.ticket, m)
			}
			extra = r.batch.rest(&p.mu, 1)
			if batch && extra != nil {
				var more []jsontext.Value
				more, _, _ = jsonrpc.Split(extra)
				kept, extra, changed = append(kept, more...), nil, true
			}
		}
		kept = append(kept, one)
	}
	switch {
	case len(kept) == 0:
	case !changed:
		err = p.toClient.line(line)
	case batch:
		err = p.toClient.line(jsonrpc.Join(kept))
	default:
		err = p.toClient.line(kept[0])
	}
	return errors.Join(err, p.toClient.line(extra))
}

// garbled handles a message of the server that two parsers could read in two ways. It is never passed on. If it is an
// answer, the client gets an error instead; if it is a request, the server gets an error.
func (p *Proxy) garbled(raw []byte, why error) error {
	id, response := jsonrpc.IDOf(raw)
	if id != nil && response {
		if r := p.answered(id); r != nil {
			failure := errorResponse(r.id, jsonrpc.CodeInternal, "assay-run: the MCP server's answer cannot be read: "+
				why.Error(), nil)
			if r.ticket != nil {
				m, _ := jsonrpc.Decode(failure)
				p.cfg.Run.finished(r.ticket, m)
			}
			return errors.Join(p.toClient.line(failure), p.toClient.line(r.batch.rest(&p.mu, 1)))
		}
	}
	p.warn("a message of the MCP server cannot be read and was not passed on: " + why.Error())
	if id != nil && !response {
		return p.toServer.line(errorResponse(id, jsonrpc.CodeParse, "assay-run: "+why.Error(), nil))
	}
	return nil
}

func (p *Proxy) warn(message string) {
	if p.cfg.Warn != nil {
		p.cfg.Warn(message)
	}
}

// target returns what a request other than tools/call asks for, in the policy's terms.
func target(m *jsonrpc.Message) (kind policy.Kind, name string, err error) {
	var p struct {
		URI  *string        `json:"uri"`
		Name *string        `json:"name"`
		Ref  jsontext.Value `json:"ref"`
	}
	switch m.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		kind = policy.Resources
	case "prompts/get":
		kind = policy.Prompts
	case "completion/complete":
	default:
		return "", "", nil
	}
	if m.Params.Kind() != '{' {
		return "", "", errors.New(m.Method + " needs params")
	}
	if err := jsonrpc.ExactKeys(m.Params, "uri", "name", "ref"); err != nil {
		return "", "", err
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return "", "", errors.New(m.Method + ": params cannot be read")
	}
	if m.Method == "completion/complete" {
		if p.Ref.Kind() != '{' || jsonrpc.ExactKeys(p.Ref, "uri", "name") != nil || json.Unmarshal(p.Ref, &p) != nil {
			return "", "", errors.New("completion/complete: ref cannot be read")
		}
		if kind = policy.Prompts; p.URI != nil {
			kind = policy.Resources
		}
	}
	switch {
	case kind == policy.Resources && p.URI != nil:
		return kind, *p.URI, nil
	case kind == policy.Prompts && p.Name != nil:
		return kind, *p.Name, nil
	}
	return "", "", errors.New(m.Method + ": the request does not name a resource or a prompt")
}

// access decides on a request for a resource or a prompt. Other requests pass.
func (p *Proxy) access(m *jsonrpc.Message) (answer []byte, pass bool) {
	kind, name, err := target(m)
	if err != nil {
		return errorResponse(m.ID, jsonrpc.CodeInvalidParams, "assay-run: "+err.Error(), nil), false
	}
	if kind == "" {
		return nil, true
	}
	return p.decide(m, kind, name)
}

// serverAsks decides on a request of the server to the client, by method: sampling/createMessage, elicitation/create,
// roots/list. Notifications pass.
func (p *Proxy) serverAsks(m *jsonrpc.Message) (answer []byte, pass bool) {
	if m.ID == nil || m.Method == "ping" {
		return nil, true
	}
	return p.decide(m, policy.ServerRequests, m.Method)
}

// inputs decides, as serverAsks does, on what a server asks of the client in the result of a request (MCP 2026-07-28
// and later). If the result may not pass, the client gets answer instead.
func (p *Proxy) inputs(id, result jsontext.Value) (answer []byte, pass bool) {
	if result.Kind() != '{' || !p.rules.set.Lists(policy.ServerRequests) {
		return nil, true
	}
	var r struct {
		Inputs jsontext.Value `json:"inputRequests"`
	}
	var asked map[string]jsontext.Value
	if jsonrpc.ExactKeys(result, "inputRequests") != nil || json.Unmarshal(result, &r) != nil ||
		r.Inputs.Kind() == '{' && json.Unmarshal(r.Inputs, &asked) != nil {
		return unreadableInputs(id), false
	}
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		method := jsonrpc.Value(asked[key], "method")
		m := &jsonrpc.Message{ID: id}
		if jsonrpc.ExactKeys(asked[key], "method") != nil || method.Kind() != '"' ||
			json.Unmarshal(method, &m.Method) != nil || m.Method == "" {
			return unreadableInputs(id), false
		}
		if answer, pass := p.decide(m, policy.ServerRequests, m.Method); !pass {
			return answer, false
		}
	}
	return nil, true
}

func unreadableInputs(id jsontext.Value) []byte {
	return errorResponse(id, codeDenied,
		"assay-run: what the MCP server asks for in its result cannot be read, so it is denied", nil)
}

func (p *Proxy) decide(m *jsonrpc.Message, kind policy.Kind, name string) (answer []byte, pass bool) {
	found := p.rules.set.CheckName(kind, name)
	if len(found) == 0 && !p.rules.set.Lists(kind) {
		return nil, true // nothing was decided
	}
	c := &toolCall{Name: m.Method + " " + name, id: jsonrpc.IDText(m.ID)}
	if kind == policy.ServerRequests {
		c.Name = name
	}
	if err := p.logDecision(c, found); err != nil {
		p.warn(err.Error())
		return errorResponse(m.ID, codeDenied,
			"assay-run: the decision about this request could not be recorded, so it is denied", nil), false
	}
	if len(found) > 0 {
		if m.ID == nil {
			return nil, false
		}
		return denial(m.ID, found), false
	}
	return nil, true
}

// call decides on a tools/call.
func (p *Proxy) call(m *jsonrpc.Message, r *pending) (answer []byte, pass bool) {
	c, err := decodeCall(m)
	if err != nil {
		return errorResponse(m.ID, jsonrpc.CodeInvalidParams, "assay-run: "+err.Error(), nil), false
	}
	if m.ID == nil {
		return nil, false // a notification would hide the result
	}
	found := p.rules.set.Check(&policy.Call{Tool: c.Name, Params: c.Arguments, Now: time.Since(p.rules.began)})
	if v, changed := p.rules.pins.changed(c.Name); changed {
		found = append(found, v)
	}
	if err := p.logDecision(c, found); err != nil {
		p.warn(err.Error())
		return errorResponse(m.ID, codeDenied,
			"assay-run: the decision about this call could not be recorded, so it is denied", nil), false
	}
	if len(found) > 0 {
		p.cfg.Run.denied(c, found[0])
		return denial(m.ID, found), false
	}
	ticket, rejection := p.cfg.Run.propose(c, p.warn)
	if rejection != "" {
		return errorResponse(m.ID, codeDenied, "denied by the run's policy: "+rejection, nil), false
	}
	p.mu.Lock()
	r.ticket = ticket
	p.mu.Unlock()
	return nil, true
}

// decision is a line of the decision log: a CloudEvent.
type decision struct {
	SpecVersion string       `json:"specversion"`
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Source      string       `json:"source"`
	Time        string       `json:"time"`
	Data        decisionData `json:"data"`
}

type decisionData struct {
	Tool       string `json:"tool"`
	ToolCallID string `json:"tool_call_id"`
	Decision   string `json:"decision"` // allow or deny
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// logDecision writes a decision about a call, in one write.
func (p *Proxy) logDecision(c *toolCall, found []policy.Violation) error {
	if p.cfg.Decisions == nil {
		return nil
	}
	d := decision{
		SpecVersion: "1.0", ID: schema.NewID(), Type: "assay.tool.decision", Source: p.cfg.Source,
		Time: time.Now().UTC().Format(time.RFC3339Nano),
		Data: decisionData{Tool: c.Name, ToolCallID: c.id, Decision: "allow"},
	}
	if len(found) > 0 {
		d.Data.Decision, d.Data.Rule, d.Data.Reason = "deny", found[0].Rule, found[0].Reason
	}
	line, err := json.Marshal(&d)
	if err == nil {
		_, err = p.cfg.Decisions.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write a line of the decision log: %w", err)
	}
	c.logged = p.cfg.Logged
	return nil
}

// lists maps each request for a list to the member of the answer that holds the list.
var lists = map[string]string{"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}

// filter removes forbidden items from the answer to a list request. All other bytes stay.
func (p *Proxy) filter(method string, raw, result jsontext.Value) (jsontext.Value, bool) {
	member, isList := lists[method]
	var r map[string]jsontext.Value
	if !isList || result.Kind() != '{' || json.Unmarshal(result, &r) != nil {
		return nil, false
	}
	var items []jsontext.Value
	if r[member].Kind() != '[' || json.Unmarshal(r[member], &items) != nil {
		return nil, false
	}
	kept := make([]jsontext.Value, 0, len(items))
	for _, item := range items {
		if p.listed(method, item) {
			kept = append(kept, item)
		}
	}
	if len(kept) == len(items) {
		return nil, false
	}
	return replace(raw, jsontext.Pointer("/result/"+member), jsonrpc.Join(kept))
}

// listed reports whether an item of a list may be used.
func (p *Proxy) listed(method string, item jsontext.Value) bool {
	var i struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	if json.Unmarshal(item, &i) != nil {
		return true
	}
	switch method {
	case "resources/list":
		return len(p.rules.set.CheckName(policy.Resources, i.URI)) == 0
	case "prompts/list":
		return len(p.rules.set.CheckName(policy.Prompts, i.Name)) == 0
	}
	same, news := p.rules.pins.list(i.Name, item)
	if news {
		p.warn("the MCP server changed the tool " + i.Name +
			" after it was first listed: calls of it are denied (--allow-tool-changes allows them)")
	}
	return same && !p.rules.set.Forbidden(i.Name)
}

// withID returns the message with a different id.
func withID(raw, id jsontext.Value) jsontext.Value {
	if m, ok := replace(raw, "/id", id); ok {
		return m
	}
	return raw
}

// replace replaces a value of a message, at the place that the message's own decoder found.
func replace(raw jsontext.Value, at jsontext.Pointer, value []byte) (jsontext.Value, bool) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		if k, n := d.StackIndex(d.StackDepth()); d.StackPointer() == at && k == '{' && n%2 == 1 {
			old, err := d.ReadValue()
			if err != nil {
				return nil, false
			}
			end := d.InputOffset()
			out := append([]byte{}, raw[:end-int64(len(old))]...)
			out = append(out, value...)
			return append(out, raw[end:]...), true
		}
		if _, err := d.ReadToken(); err != nil {
			return nil, false
		}
	}
}

// maxPending limits the requests without an answer.
const maxPending = 10_000

// pending is a request of the client without an answer.
type pending struct {
	id     jsontext.Value // as the client wrote it
	method string
	ticket *ticket  // from the run's gateway, for a tools/call
	batch  *answers // of the batch that contained the request, which may be a batch of one
}

// answers are the proxy's own answers to requests of a batch. They are sent together with the server's answers.
type answers struct {
	denied [][]byte
	open   int // requests without an answer from the server
}

// rest counts the server's answers. It returns the proxy's own answers once, as a batch: with the server's first
// answer, or when none will come.
func (b *answers) rest(mu *sync.Mutex, answered int) []byte {
	mu.Lock()
	defer mu.Unlock()
	if len(b.denied) == 0 || answered == 0 && b.open > 0 {
		return nil
	}
	var list []jsontext.Value
	for _, d := range b.denied {
		list = append(list, d)
	}
	b.denied = nil
	return jsonrpc.Join(list)
}

// expect remembers a request until its answer. A request that cannot be remembered is refused, because its answer
// would pass unchecked.
func (p *Proxy) expect(m *jsonrpc.Message, r *pending) (answer []byte, ok bool) {
	if m.ID == nil {
		return nil, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := jsonrpc.IDKey(m.ID)
	if _, twice := p.pending[key]; twice {
		return errorResponse(m.ID, jsonrpc.CodeInvalidRequest, "assay-run: another request with this id is in flight",
			nil), false
	}
	if len(p.pending) >= maxPending {
		return errorResponse(m.ID, codeDenied, fmt.Sprintf("assay-run: more than %d requests in flight", maxPending),
			nil), false
	}
	r.id = m.ID.Clone()
	p.pending[key] = r
	return nil, true
}

// take forgets a request and returns it, or nil if there is none.
func (p *Proxy) take(id jsontext.Value) *pending {
	if id == nil {
		return nil
	}
	return p.takeKey(jsonrpc.IDKey(id))
}

func (p *Proxy) takeKey(key string) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.pending[key]
	delete(p.pending, key)
	return r
}

// answered forgets the request that the server's answer belongs to, and returns it. Some servers answer the id 1 with
// "1", or "1" with 1, and some clients accept that: the answer then belongs to the request in flight.
func (p *Proxy) answered(id jsontext.Value) *pending {
	r := p.take(id)
	if r == nil && id != nil {
		r = p.takeKey(jsonrpc.OtherKey(id))
	}
	return r
}

// waiting reports whether the server still has to answer a request.
func (p *Proxy) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending) > 0
}

// cancelled forgets a request that the client cancels: it needs no answer.
func (p *Proxy) cancelled(m *jsonrpc.Message) {
	if r := p.take(cancelledID(m)); r != nil && r.ticket != nil {
		p.cfg.Run.cancelled(r.ticket)
	}
}

// cancelledID returns the id of the request that notifications/cancelled cancels.
func cancelledID(m *jsonrpc.Message) jsontext.Value {
	return jsonrpc.Value(m.Params, "requestId")
}
