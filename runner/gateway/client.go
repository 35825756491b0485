package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/internal/rpc"
	"github.com/assay-run/assay-run/runner/gateway/recording"
	"github.com/assay-run/assay-run/runner/policy"
)

// client is one client of the gateway: the tools that it registered, and the run
// that its calls belong to.
type client struct {
	g     *Gateway
	conn  *rpc.Conn
	state *policy.State // of its calls while they belong to no run

	cursors pages
	tree    atomic.Uint32 // the process that does its calls with its descendants; 0: any

	mu      sync.Mutex
	rules   *policy.Set // its own; the run's, where it has started one
	tools   map[string]*tool
	run     *recording.Run
	subs    map[string]context.CancelFunc
	lastSub uint64
}

// open makes the state of a new client.
func (g *Gateway) open(conn *rpc.Conn) rpc.Session {
	c := &client{g: g, conn: conn, tools: map[string]*tool{}, subs: map[string]context.CancelFunc{}}
	if g.run != nil {
		c.rules, c.run = g.run.Rules, g.run
		g.run.Attach()
	} else {
		c.rules, c.state = policy.NewSet(g.cfg.Policy), policy.NewState()
	}
	return c
}

// Close leaves the client's run. A run without clients ends after the grace time.
func (c *client) Close() {
	if run := c.runNow(); run != nil {
		c.leave(run)
	}
}

// Serve hands a request to its method.
func (c *client) Serve(r *rpc.Request) {
	if serve := methods[r.Method]; serve != nil {
		serve(c, r)
		return
	}
	r.Answer(nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "unknown method %.100q", r.Method))
}

// rulesNow are the client's own rules.
func (c *client) rulesNow() *policy.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rules
}

// runNow is the run that the client's calls belong to, or nil.
func (c *client) runNow() *recording.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// agent is the agent that the client is: the one of its token, else the one of its
// run, else "".
func (c *client) agent() string {
	if id := c.conn.Identity(); id != "" {
		return id
	}
	if run := c.runNow(); run != nil && run != c.g.run {
		return run.Info().AgentID
	}
	return ""
}

// mayUse reports why the client may not use a run. Only clients with a token of their
// own may not even look at it.
func (c *client) mayUse(run *recording.Run, look bool) *jsonrpc.Error {
	agent := c.agent()
	if look {
		agent = c.conn.Identity()
	}
	if owner := run.Info().AgentID; agent != "" && owner != "" && owner != agent {
		return jsonrpc.Errorf(codeNotYours, "run %s is of another agent", run.ID)
	}
	return nil
}

// join makes run the one that the client's calls belong to.
func (c *client) join(run *recording.Run) {
	c.mu.Lock()
	old := c.run
	c.run = run
	c.mu.Unlock()
	if run == old {
		return
	}
	run.Attach()
	if old != nil {
		c.leave(old)
	}
}

func (c *client) leave(run *recording.Run) {
	run.Detach(c.g.cfg.Limits.Grace, func() { c.g.abandon(run) })
}

// runFor finds the run of a request, which either looks at the run or uses it: the run
// that the request names, else the client's own. A client without a run joins the run
// that it uses.
func (c *client) runFor(id string, look bool) (*recording.Run, *jsonrpc.Error) {
	run := c.runNow()
	switch {
	case id == "" && run == nil:
		return nil, jsonrpc.Errorf(codeNoRun, "no run is open on this connection: open one with runs.start, or name one with run_id")
	case id == "" || run != nil && run.ID == id:
		return run, nil
	}
	named := c.g.runs.named(id)
	if named == nil {
		if past, ended := c.g.runs.earlier(id); ended && !look && (c.conn.Identity() == "" || mark(c.conn.Identity()) == past.Agent) {
			return nil, jsonrpc.Errorf(codeRunState, "run %s is not open, it is %s", id, past.state())
		}
		return nil, jsonrpc.Errorf(codeNoRun, "run %.100q does not exist", id)
	}
	if err := c.mayUse(named, look); err != nil {
		return nil, err
	}
	if run == nil && !look {
		c.join(named)
	}
	return named, nil
}
