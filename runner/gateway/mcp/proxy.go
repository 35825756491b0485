package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"
)

// MaxLine bounds a message of either side, in bytes.
const MaxLine = 64 << 20

// maxPending bounds the requests that the proxy remembers until their answer.
const maxPending = 10_000

// Config says what a Proxy checks and where it reports.
type Config struct {
	// Policy is in force for every tools/call; nil forbids nothing.
	Policy *policy.File
	// Decisions gets a line for each tools/call, in one write; nil gets none.
	// A call whose decision cannot be written is denied.
	Decisions io.Writer
	// Source is the source of the decision events, a URI.
	Source string
	// Run, if set, is the gateway of the run that the proxy is part of.
	Run *Run
	// Warn, if set, is told what an operator should know.
	Warn func(message string)
}

// Proxy relays between one client and one server.
type Proxy struct {
	cfg   Config
	rules *policy.Set
	began time.Time

	toClient, toServer lockedWriter

	mu    sync.Mutex
	lists map[string]bool    // ids of tools/list requests on their way
	calls map[string]*ticket // ids of tools/call requests, and the run's for them
}

// New makes a proxy.
func New(cfg Config) *Proxy {
	return &Proxy{
		cfg: cfg, rules: policy.NewSet(cfg.Policy), began: time.Now(),
		lists: map[string]bool{}, calls: map[string]*ticket{},
	}
}

// lockedWriter writes whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) line(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(append(b, '\n'))
	return err
}

// Relay relays until the server closes its output. When the client is done,
// closeServer is called, and the server's last words are still relayed.
func (p *Proxy) Relay(clientIn io.Reader, clientOut io.Writer, serverIn io.Writer, serverOut io.Reader, closeServer func()) error {
	p.toClient.w, p.toServer.w = clientOut, serverIn
	go func() {
		if err := eachLine(clientIn, p.fromClient); err != nil {
			p.warn("read from the client: " + err.Error())
			p.toClient.line(errorResponse(nil, codeInvalidRequest, "assay-run: "+err.Error(), nil)) // if it is still there
		}
		closeServer()
	}()
	if err := eachLine(serverOut, p.fromServer); err != nil {
		return fmt.Errorf("read from the MCP server: %w", err)
	}
	return nil
}

// eachLine calls f with each line without its newline, until the end or an
// error of f. A last line without a newline counts.
func eachLine(r io.Reader, f func(line []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxLine:
			return fmt.Errorf("a message is larger than %d bytes", MaxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && err != io.EOF:
			return err
		}
		if text := bytes.TrimSuffix(line, []byte("\n")); len(bytes.TrimSpace(text)) > 0 {
			if ferr := f(text); ferr != nil {
				return ferr
			}
		}
		if err == io.EOF {
			return nil
		}
		line = line[:0]
	}
}

// fromClient handles one line of the client.
func (p *Proxy) fromClient(line []byte) error {
	list, batch, err := split(line)
	if err != nil {
		return p.toClient.line(errorResponse(nil, codeParse, "assay-run: "+err.Error(), nil))
	}
	var kept []jsontext.Value
	for _, one := range list {
		if answer, refused := p.check(one); refused {
			if answer != nil {
				if err := p.toClient.line(answer); err != nil {
					return err
				}
			}
			continue
		}
		kept = append(kept, one)
	}
	switch {
	case len(kept) == 0:
		return nil
	case len(kept) == len(list):
		return p.toServer.line(line)
	case batch:
		return p.toServer.line(join(kept))
	}
	return nil
}

// check tells whether a message of the client must not reach the server, and
// what the client gets instead.
func (p *Proxy) check(raw jsontext.Value) (answer []byte, refused bool) {
	m, err := decode(raw)
	if err != nil {
		return errorResponse(m.ID, codeInvalidRequest, "assay-run: "+err.Error(), nil), true
	}
	switch m.Method {
	case "tools/list":
		p.remember(p.lists, m.ID)
	case "tools/call":
		return p.call(m)
	case "notifications/cancelled":
		p.cancelled(m)
	}
	return nil, false
}

func (p *Proxy) remember(set map[string]bool, id jsontext.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != nil && len(set) < maxPending {
		set[idKey(id)] = true
	}
}

// call decides a tools/call.
func (p *Proxy) call(m *message) (answer []byte, refused bool) {
	c, err := decodeCall(m)
	if err != nil {
		return errorResponse(m.ID, codeInvalidParams, "assay-run: "+err.Error(), nil), true
	}
	if m.ID == nil {
		return nil, true // nobody could be told what came of it
	}
	p.mu.Lock()
	_, twice := p.calls[idKey(m.ID)]
	full := len(p.calls) >= maxPending
	p.mu.Unlock()
	switch {
	case twice:
		return errorResponse(m.ID, codeInvalidRequest, "assay-run: another call with this id is in flight", nil), true
	case full:
		return errorResponse(m.ID, codeDenied, fmt.Sprintf("assay-run: more than %d calls in flight", maxPending), nil), true
	}
	found := p.rules.Check(&policy.Call{Tool: c.Name, Params: c.Arguments, Now: time.Since(p.began)})
	if err := p.logDecision(c, found); err != nil {
		p.warn(err.Error())
		return errorResponse(m.ID, codeDenied, "assay-run: the decision about this call could not be recorded, so it is denied", nil), true
	}
	if len(found) > 0 {
		p.cfg.Run.denied(c, found[0])
		return denial(m.ID, found), true
	}
	ticket, rejection := p.cfg.Run.propose(c, p.warn)
	if rejection != "" {
		return errorResponse(m.ID, codeDenied, "denied by the run's policy: "+rejection, nil), true
	}
	p.mu.Lock()
	p.calls[idKey(m.ID)] = ticket
	p.mu.Unlock()
	return nil, false
}

// cancelled forgets a call that the client takes back: the server need not answer
// it any more.
func (p *Proxy) cancelled(m *message) {
	var params struct {
		ID jsontext.Value `json:"requestId"`
	}
	if m.Params.Kind() != '{' || json.Unmarshal(m.Params, &params) != nil {
		return
	}
	if t, waiting := p.take(params.ID); waiting {
		p.cfg.Run.cancelled(t)
	}
}

// take forgets a call on its way, and tells whether it was one.
func (p *Proxy) take(id jsontext.Value) (t *ticket, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, waiting = p.calls[idKey(id)]
	delete(p.calls, idKey(id))
	return t, waiting
}

// fromServer handles one line of the server. What cannot be parsed goes on as
// it is: the client is not ours to protect from its server.
func (p *Proxy) fromServer(line []byte) error {
	list, batch, err := split(line)
	if err != nil {
		return p.toClient.line(line)
	}
	changed := false
	for i, one := range list {
		m, err := decode(one)
		if err != nil || m.Method != "" || m.ID == nil {
			continue
		}
		id := idKey(m.ID)
		p.mu.Lock()
		isList := p.lists[id]
		delete(p.lists, id)
		p.mu.Unlock()
		if isList {
			if filtered, ok := p.filter(one, m.Result); ok {
				list[i], changed = filtered, true
			}
		} else if t, isCall := p.take(m.ID); isCall {
			p.cfg.Run.finished(t, m)
		}
	}
	switch {
	case !changed:
		return p.toClient.line(line)
	case batch:
		return p.toClient.line(join(list))
	}
	return p.toClient.line(list[0])
}

func (p *Proxy) warn(message string) {
	if p.cfg.Warn != nil {
		p.cfg.Warn(message)
	}
}
