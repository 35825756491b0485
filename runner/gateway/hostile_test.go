package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

func TestAMessageTooLargeIsAnsweredAndEndsTheConnection(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Message = 1 << 16 })
	for name, text := range map[string]string{
		"a line":               `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<17) + "\"}\n",
		"a line without end":   strings.Repeat("x", 1<<20),
		"a line of whitespace": strings.Repeat(" ", 1<<17) + "\n",
	} {
		conn, err := net.Dial("unix", f.path)
		if err != nil {
			t.Fatal(err)
		}
		go conn.Write([]byte(text)) // the server may stop reading
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, "larger than allowed") {
			t.Errorf("%s: answer %q, %v", name, line, err)
		}
		conn.Close()
	}
	// One of just the size is fine.
	c := dial(t, f.path)
	pad := strings.Repeat("x", 1<<16-200)
	if _, err := c.call("nothing", `{"pad":"`+pad+`"}`); err == nil || err.Code != codeMethodNotFound {
		t.Errorf("a message within the limit: %v", err)
	}
}

func TestASlowMessageEndsItsConnectionAndAPauseDoesNot(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.MessageTimeout = 100 * time.Millisecond; c.Token = "t" })
	url, err := f.Listen("ws", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	ask := func() {
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"runs.list"}`+"\n")
		if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "result") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	ask()
	time.Sleep(250 * time.Millisecond) // a client that thinks between messages
	ask()
	fmt.Fprint(conn, `{"jsonrpc":`)
	line, err := br.ReadString('\n')
	if err != nil || !strings.Contains(line, "not whole in time") {
		t.Errorf("answer %q, %v", line, err)
	}
	if _, err := br.ReadString('\n'); err == nil {
		t.Error("the connection goes on")
	}

	// The same over a WebSocket: a frame that stops in the middle.
	ws, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	fmt.Fprintf(ws, "GET /?token=t HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	wr := bufio.NewReader(ws)
	for {
		line, err := wr.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			break
		}
	}
	ws.Write([]byte{0x81, 0x80 | 100, 1, 2, 3, 4, 'x'})
	ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := wr.ReadByte(); err == nil {
		for err == nil {
			_, err = wr.ReadByte()
		}
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a frame that never ends keeps its connection")
	}
}

func TestMoreConnectionsThanAllowedAreToldSo(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Connections = 2 })
	a, b := dial(t, f.path), dial(t, f.path)
	a.must("runs.list", "{}")
	b.must("runs.list", "{}")
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "more than 2 connections") {
		t.Errorf("answer %q, %v", line, err)
	}
	a.must("runs.list", "{}")
}

// heap is the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client that floods, reads at its own pace and answers callbacks only when
// it has sent everything: every call gets one answer and one line.
func TestAFloodIsAnsweredCallByCall(t *testing.T) {
	t.Run("all of it waits its turn", func(t *testing.T) { flood(t, 96<<20, false) })
	t.Run("more than may wait is told so", func(t *testing.T) { flood(t, 16<<20, true) })
}

func flood(t *testing.T, mayWait int, wantBusy bool) {
	const calls = 100_000
	f := start(t, func(c *Config) { c.Limits.InFlightBytes = mayWait })
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := heap()
	var peak atomic.Uint64
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				if m.HeapAlloc > peak.Load() {
					peak.Store(m.HeapAlloc)
				}
			}
		}
	})
	callbacks := make(chan []byte, calls)
	answers, fates := 0, map[string]int{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		br := bufio.NewReaderSize(conn, 1<<16)
		for answers < calls {
			line, err := br.ReadBytes('\n')
			if err != nil {
				t.Error(err)
				return
			}
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				t.Error(err)
				return
			}
			if m.Method != nil {
				callbacks <- m.ID
				continue
			}
			answers++
			var r proposalResult
			if err := json.Unmarshal(m.Result, &r); err != nil || len(r.Actions) != 1 {
				continue // the registration
			}
			fates[r.Actions[0].Outcome.Kind]++
		}
	}()
	w := bufio.NewWriterSize(conn, 1<<16)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":0,"method":"tools.register","params":[{"name":"t"}]}`+"\n")
	for i := 1; i < calls; i++ {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"proposal.submit","params":%s}`+"\n", i, oneCall("t", `{"n":1}`))
	}
	w.Flush()
	go func() {
		for {
			select {
			case id := <-callbacks:
				fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":1}`+"\n", id)
			case <-read:
				return
			}
		}
	}()
	<-read
	close(stop)
	watch.Wait()
	f.end(t)
	audit := f.rec.lines(t, schema.AuditPath, schema.CallEventV2)
	if answers != calls || len(audit) != calls-1 || fates[schema.CallSuccess]+fates[schema.CallRateLimited] != calls-1 {
		t.Errorf("%d answers, fates %v, %d lines", answers, fates, len(audit))
	}
	if (fates[schema.CallRateLimited] > 0) != wantBusy || fates[schema.CallSuccess] < 1024 {
		t.Errorf("fates %v, want some told to wait: %v", fates, wantBusy)
	}
	grown := int64(peak.Load()) - int64(before)
	t.Logf("fates %v, heap grew by %d MiB at most", fates, grown>>20)
	if grown > 256<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// A client that floods and never reads is cut off; what it proposed is on
// record, and nobody else notices.
func TestAClientThatNeverReadsIsCutOff(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.WriteTimeout = 200 * time.Millisecond; c.Limits.Outbox = 1 << 16 })
	conn, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"proposal.submit","params":` + oneCall("none", "{}") + "}\n")
	sent := 0
	for ; sent < 1_000_000; sent++ {
		if _, err := conn.Write(line); err != nil {
			break
		}
	}
	if sent == 1_000_000 {
		t.Fatal("the client could send for ever")
	}
	c := dial(t, f.path)
	c.must("runs.list", "{}")
	f.end(t)
	m := f.Metrics()
	if audit := f.rec.lines(t, schema.AuditPath, schema.CallEventV2); uint64(len(audit)) != m.Calls || m.Calls == 0 {
		t.Errorf("%d lines, metrics %+v", len(audit), m)
	}
}

func TestCallbacksNeverAnsweredEndAtTheirDeadline(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	c.tool = func(toolsExecute) (string, string) { return "", "" }
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t","deadline_ms":50}]`)
	var waiting []<-chan message
	for range 500 {
		waiting = append(waiting, c.start("proposal.submit", oneCall("t", "{}")))
	}
	for _, ch := range waiting {
		r, err := c.wait(ch)
		if err != nil {
			t.Fatal(err)
		}
		if o := c.outcome(r).Outcome; o.Code != schema.FailDeadline {
			t.Fatalf("outcome %+v", o)
		}
	}
	if m := f.Metrics(); m.InFlightBytes != 0 || m.Errors[schema.FailDeadline] != 500 || m.Turns != 500 {
		t.Errorf("metrics %+v", m)
	}
}

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
	if got := state(); got != stateOpen {
		t.Errorf("with a client left, the run is %s", got)
	}
	watcher.conn.Close()
	<-watcher.gone
	deadline := time.Now().Add(10 * time.Second)
	for f.run.stateNow() != stateIncomplete {
		if time.Now().After(deadline) {
			t.Fatalf("the run is %s", f.run.stateNow())
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
	if s.State != stateIncomplete || s.Intent != "back" || s.Turns != 1 {
		t.Errorf("session %+v", s)
	}
}

func (r *recording) stateNow() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// What a client sent before it went away counts, also when nobody had accepted
// its connection yet.
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
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"runs.record_turns","params":{"turns":[{"tool":"x"}]}}`+"\n")
			conn.Close()
		}
		c.conn.Close()
		f.end(t)
		if got := f.rec.lines(t, schema.TurnsPath, schema.TurnV0); len(got) != 20 {
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
	if got := f.rec.lines(t, schema.TurnsPath, schema.TurnV0); len(got) != 1 {
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
	f.rec.mu.Lock()
	f.rec.fail = errors.New("disk full")
	f.rec.mu.Unlock()
	for i := range 3 {
		if _, err := c.call("proposal.submit", oneCall("t", "{}")); err == nil || err.Code != codeNotRecorded ||
			i > 0 && !strings.Contains(err.Message, "nothing was called") {
			t.Fatalf("error %v, want not recorded", err)
		}
		if _, err := c.call("runs.record_turns", `{"turns":[{"tool":"x"}]}`); err == nil || err.Code != codeNotRecorded {
			t.Fatalf("error %v, want not recorded", err)
		}
	}
	if ran != 1 {
		t.Errorf("the tool ran %d times, want once", ran)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := f.Close(ctx); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Close says %v", err)
	}
}

// stuckWire writes nothing until it is released.
type stuckWire struct {
	memWire
	release chan struct{}
}

func (w *stuckWire) write(b []byte) error { <-w.release; return w.memWire.write(b) }

func TestSendersWaitForAClientThatDoesNotRead(t *testing.T) {
	w := &stuckWire{release: make(chan struct{})}
	o := newOutbox(w, 1000)
	var sent atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { o.send(make([]byte, 99)); sent.Add(1) })
	}
	held := func() int { o.mu.Lock(); defer o.mu.Unlock(); return len(o.buf) }
	for held() <= 1000 {
		runtime.Gosched()
	}
	if n := held(); n > 1100 {
		t.Errorf("%d bytes wait, 1,000 may", n)
	}
	if n := sent.Load(); n > 11 {
		t.Errorf("%d senders went on", n)
	}
	close(w.release)
	wg.Wait()
	if n := w.out.Len(); n != 100*100 {
		t.Errorf("%d bytes were written", n)
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
	for f.run.stateNow() != stateClosing {
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
	if got := f.rec.lines(t, schema.TurnsPath, schema.TurnV0); len(got) != 1 {
		t.Errorf("%d turns", len(got))
	}
}

func TestConcurrentBatchesAreContiguousAndFollowersSeeEachTurnOnce(t *testing.T) {
	const clients, batches, size = 16, 40, 25
	f := start(t, nil)
	first := dial(t, f.path)
	first.must("runs.start", `{"agent_id":"a","intent":""}`)

	var seen []uint64
	var follow sync.Mutex
	all := make(chan struct{})
	note := func(turns jsontext.Value) {
		var list []struct {
			Index uint64 `json:"index"`
		}
		if err := json.Unmarshal(turns, &list); err != nil {
			t.Error(err)
		}
		follow.Lock()
		defer follow.Unlock()
		for _, turn := range list {
			seen = append(seen, turn.Index)
		}
		if len(seen) == clients*batches*size {
			close(all)
		}
	}
	var wg sync.WaitGroup
	for w := range clients {
		c := dial(t, f.path)
		wg.Go(func() {
			for b := range batches {
				var turns []string
				for i := range size {
					turns = append(turns, fmt.Sprintf(`{"tool":"w%d","parameters":{"b":%d,"i":%d},"index":%d}`, w, b, i, 7))
				}
				var r struct {
					First uint64 `json:"first_index"`
				}
				res, err := c.call("runs.record_turns", `{"run_id":"run_1","turns":[`+strings.Join(turns, ",")+`]}`)
				if err != nil || json.Unmarshal([]byte(res), &r) != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watcher := dial(t, f.path)
	watcher.notified = func(method string, params jsontext.Value) {
		var p struct {
			Turns jsontext.Value `json:"turns"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			t.Error(err)
		}
		note(p.Turns)
	}
	follow.Lock() // the answer's turns come first
	var sub struct {
		Turns jsontext.Value `json:"turns"`
	}
	if err := json.Unmarshal([]byte(watcher.must("runs.subscribe", `{"run_id":"run_1"}`)), &sub); err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Index uint64 `json:"index"`
	}
	json.Unmarshal(sub.Turns, &list)
	for _, turn := range list {
		seen = append(seen, turn.Index)
	}
	if len(seen) == clients*batches*size {
		close(all)
	}
	follow.Unlock()
	wg.Wait()
	select {
	case <-all:
	case <-time.After(30 * time.Second):
		t.Error("the follower did not see all turns")
	}
	f.end(t)
	lines := f.rec.lines(t, schema.TurnsPath, schema.TurnV0)
	if len(lines) != clients*batches*size || f.rec.writes[schema.TurnsPath] != clients*batches {
		t.Fatalf("%d turns in %d writes, want %d in %d", len(lines), f.rec.writes[schema.TurnsPath], clients*batches*size, clients*batches)
	}
	for i, line := range lines {
		want := fmt.Sprintf(`"i":%d}`, i%size)
		if !strings.Contains(line, want) || !strings.Contains(line, fmt.Sprintf(`"index":%d,`, i)) || seen[i] != uint64(i) {
			t.Fatalf("turn %d, followed as %d: %s", i, seen[i], line)
		}
		if i%size > 0 && toolOf(line) != toolOf(lines[i-1]) {
			t.Fatalf("a batch is torn apart at turn %d", i)
		}
	}
}

func toolOf(line string) string {
	_, rest, _ := strings.Cut(line, `"tool":"`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func TestATurnStaysUnderItsCapsWhateverItHolds(t *testing.T) {
	rec := newFileRecorder(t.TempDir())
	defer rec.close()
	cfg := Config{Turns: Turns{}.Effective()}
	cfg.Limits.setDefaults()
	long := strings.Repeat("k", 100_000)
	for name, value := range map[string]string{
		"one long text":               `"` + strings.Repeat("é", 100_000) + `"`,
		"texts under long keys":       `{"` + long + `":[` + strings.Repeat(`"`+strings.Repeat("x", 5000)+`",`, 700) + `1]}`,
		"many numbers":                "[" + strings.Repeat("1,", 500_000) + "1]",
		"many texts of one kind":      "[" + strings.Repeat(`"`+strings.Repeat("a", 17_000)+`",`, 200) + "1]",
		"texts of control characters": `["` + strings.Repeat(`\u0001`, 100_000) + `"]`,
	} {
		r := newRecording(Recording{RunID: "run_1", Recorder: rec}, 0, newScope(nil), &cfg)
		for range 3 {
			body := schema.TurnBody{Tool: "t", Parameters: []byte(value), Output: []byte(value), VerifierVerdict: "not_run", Source: "gateway", Prompt: &long}
			r.blobs.trim(&body)
			if _, err := r.record([]schema.TurnBody{body}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := len(body.Parameters) + len(body.Output) + len(*body.Prompt); n > cfg.Turns.TurnBytes {
				t.Errorf("%s: %d bytes", name, n)
			}
			if len(body.Cut)+len(body.Blobs) == 0 {
				t.Errorf("%s: nothing says what was cut", name)
			}
		}
	}
	for _, line := range rec.lines(t, schema.TurnsPath, schema.TurnV0) {
		if len(line) > 512<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

func TestASinkDropsRatherThanWaitsAndDrainsOnClose(t *testing.T) {
	release := make(chan struct{})
	var got bytes.Buffer
	s := NewSink("slow", writer(func(b []byte) (int, error) { <-release; return got.Write(b) }))
	for i := range 3000 {
		s.offer(fmt.Appendf(nil, "%d\n", i))
	}
	_, dropped := s.Counts()
	if dropped < 3000-sinkQueue-1 {
		t.Errorf("%d dropped", dropped)
	}
	close(release)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	written, dropped := s.Counts()
	if written+dropped != 3000 || int(written) != strings.Count(got.String(), "\n") {
		t.Errorf("%d written, %d dropped, %d lines", written, dropped, strings.Count(got.String(), "\n"))
	}
	s.offer([]byte("late\n"))
	if _, now := s.Counts(); now != dropped+1 {
		t.Errorf("a line after Close is not counted")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
