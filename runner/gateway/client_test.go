package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
	"github.com/assay-run/assay-run/runner/gateway/recording/recordingtest"
	"github.com/assay-run/assay-run/schema"
)

// fixture is a gateway for one run, with everything it records.
type fixture struct {
	*Gateway
	rec  *recordingtest.Recorder
	path string
}

func start(t testing.TB, edit func(*Config)) *fixture {
	t.Helper()
	rec := recordingtest.New(t.TempDir())
	began := time.Now()
	cfg := Config{
		Run: &Recording{RunID: "run_1", Recorder: rec, TurnsFile: filepath.Join(rec.Dir, schema.TurnsPath)},
		Now: func() time.Duration { return time.Since(began) },
	}
	if edit != nil {
		edit(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path, err := g.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{g, rec, path}
	t.Cleanup(func() {
		f.end(t)
		rec.Close()
		if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
			t.Errorf("the socket directory is still there: %v", err)
		}
	})
	return f
}

func (f *fixture) end(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Close(ctx); err != nil && f.rec.Failing() == nil {
		t.Error(err)
	}
}

// frame is a message as a client reads it.
type frame struct {
	ID     jsontext.Value `json:"id"`
	Method *string        `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  jsontext.Value `json:"error"`
}

// tester is a small client for tests beside the scripted one.
type tester struct {
	t    testing.TB
	conn net.Conn
	br   *bufio.Reader
	// tool answers tools.execute; a nil result and error answer nothing.
	tool func(p toolsExecute) (result, failure string)
	// notified gets notifications.
	notified func(method string, params jsontext.Value)

	writing sync.Mutex // who reads never waits for it: the gateway may wait until somebody has read

	mu      sync.Mutex
	id      int
	waiting map[string]chan frame
	gone    chan struct{}
}

func dial(t testing.TB, path string) *tester {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &tester{
		t: t, conn: conn, br: bufio.NewReaderSize(conn, 1<<16), waiting: map[string]chan frame{},
		gone: make(chan struct{}),
		tool: func(toolsExecute) (string, string) { return `{"ok":true}`, "" },
	}
	t.Cleanup(func() { conn.Close(); <-c.gone })
	go c.read()
	return c
}

func (c *tester) read() {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		close(c.gone)
	}()
	for {
		line, err := c.br.ReadBytes('\n')
		if err != nil {
			return
		}
		var m frame
		if err := json.Unmarshal(line, &m); err != nil {
			c.t.Errorf("%v: %.300s", err, line)
			return
		}
		switch {
		case m.Method == nil:
			c.mu.Lock()
			ch := c.waiting[string(m.ID)]
			delete(c.waiting, string(m.ID))
			c.mu.Unlock()
			if ch != nil {
				ch <- m
			}
		case *m.Method == "tools.execute":
			var p toolsExecute
			if err := json.Unmarshal(m.Params, &p); err != nil {
				c.t.Error(err)
			}
			result, failure := c.tool(p)
			switch {
			case failure != "":
				c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, failure))
			case result != "":
				c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
			}
		case c.notified != nil:
			c.notified(*m.Method, m.Params)
		}
	}
}

func (c *tester) write(line string) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.Write([]byte(line + "\n"))
}

// start sends a request; the answer comes from the channel.
func (c *tester) start(method, params string) <-chan frame {
	c.mu.Lock()
	c.id++
	id := fmt.Sprint(c.id)
	ch := make(chan frame, 1)
	c.waiting[id] = ch
	c.mu.Unlock()
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return ch
}

// wait is the answer's result or error.
func (c *tester) wait(ch <-chan frame) (result string, failure *jsonrpc.Error) {
	c.t.Helper()
	select {
	case m := <-ch:
		if m.Error != nil {
			failure = &jsonrpc.Error{}
			if err := json.Unmarshal(m.Error, failure); err != nil {
				c.t.Fatal(err)
			}
			return "", failure
		}
		return string(m.Result), nil
	case <-c.gone:
		select {
		case m := <-ch:
			return string(m.Result), nil
		default:
		}
		return "", jsonrpc.Errorf(0, "the connection is gone")
	case <-time.After(2 * time.Minute):
		c.t.Fatal("no answer within 30 s")
	}
	return "", nil
}

func (c *tester) call(method, params string) (string, *jsonrpc.Error) {
	c.t.Helper()
	return c.wait(c.start(method, params))
}

// must is call without an error.
func (c *tester) must(method, params string) string {
	c.t.Helper()
	r, err := c.call(method, params)
	if err != nil {
		c.t.Fatalf("%s %.300s: %v", method, params, err)
	}
	return r
}

// submit proposes one call and returns its result.
func (c *tester) submit(tool, params string) actionResult {
	c.t.Helper()
	return c.outcome(c.must("proposal.submit", oneCall(tool, params)))
}

func (c *tester) outcome(result string) actionResult {
	c.t.Helper()
	var r proposalResult
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.Actions) != 1 {
		c.t.Fatalf("%v: %s", err, result)
	}
	return r.Actions[0]
}

func oneCall(tool, params string) string {
	return fmt.Sprintf(`{"proposal":{"id":"p","source":"tester","actions":[{"id":"a","type":"tool_call","tool":%q,"parameters":%s}]}}`, tool, params)
}
