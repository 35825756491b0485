package mcp

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/policy"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// Config says what a Proxy checks and where it reports.
type Config struct {
	// Rules apply to every request of the client and of the server. Several proxies
	// can share them. Nil forbids nothing.
	Rules *Rules
	// Decisions gets one line for each decision, in one write. Nil discards them. A
	// call whose decision cannot be written is denied.
	Decisions io.Writer
	// Logged says that the run reads what is written to Decisions.
	Logged bool
	// Source is the source of the decision events, a URI.
	Source string
	// Run, if set, is the gateway of the run that the proxy is part of.
	Run *Run
	// Warn, if set, is called with warnings for the operator.
	Warn func(message string)
}

// Rules are a policy in force, and the tools as they were first listed. They are safe
// for concurrent use.
type Rules struct {
	set   *policy.Set
	began time.Time
	pins  pins
}

// NewRules puts a policy in force. A nil file forbids nothing. If changes is true, a tool
// may be called although it has changed since it was first listed.
func NewRules(file *policy.File, changes bool) *Rules {
	return &Rules{set: policy.NewSet(file), began: time.Now(), pins: pins{off: changes}}
}

// Proxy relays between one client and one server.
type Proxy struct {
	cfg   Config
	rules *Rules

	toClient, toServer lockedWriter

	mu      sync.Mutex
	pending map[string]*pending // the client's requests that have no answer yet, by id
}

// New returns a proxy.
func New(cfg Config) *Proxy {
	if cfg.Rules == nil {
		cfg.Rules = NewRules(nil, false)
	}
	return &Proxy{cfg: cfg, rules: cfg.Rules, pending: map[string]*pending{}}
}

// Relay relays until the server closes its output. When the client has closed its
// output, Relay closes the server's input and relays what the server still writes. A
// server that then writes nothing for ten seconds and does not end is ended.
func (p *Proxy) Relay(clientIn io.Reader, clientOut io.Writer, server *Server) error {
	p.connect(clientOut, server)
	return p.relay(clientIn, server)
}

// connect sets where lines are written, each in one write. After it, fromClient can be
// called.
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
			p.toClient.line(errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: "+err.Error(), nil)) // if it is still there
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
		return p.toClient.line(errorResponse(nil, jsonrpc.CodeInvalidRequest, "assay-run: a batch must not be empty", nil))
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

// check reports whether a message of the client may reach the server, and if not, what
// the client gets instead.
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

// garbled handles a message of the server that two parsers could read in two ways. It is
// never passed on. If it answers a request, the client gets an error instead; if it is a
// request, the server gets an error.
func (p *Proxy) garbled(raw []byte, why error) error {
	id, response := jsonrpc.IDOf(raw)
	if id != nil && response {
		if r := p.answered(id); r != nil {
			failure := errorResponse(r.id, jsonrpc.CodeInternal, "assay-run: the MCP server's answer cannot be read: "+why.Error(), nil)
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
