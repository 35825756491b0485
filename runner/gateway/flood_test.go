package gateway

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// heap is the live heap in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client floods, reads at its own pace and answers callbacks only after it has sent everything: every call gets one
// answer and one line.
func TestAFloodIsAnsweredCallByCall(t *testing.T) {
	layertest.Host(t)
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
			var m frame
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
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"proposal.submit","params":%s}`+"\n", i,
			oneCall("t", `{"n":1}`))
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
	audit := f.rec.Lines(t, schema.AuditPath)
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

// A client that floods and never reads is disconnected; its proposals are recorded, and other clients are not
// affected.
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
	if audit := f.rec.Lines(t, schema.AuditPath); uint64(len(audit)) != m.Calls || m.Calls == 0 {
		t.Errorf("%d lines, metrics %+v", len(audit), m)
	}
}

func TestCallbacksNeverAnsweredEndAtTheirDeadline(t *testing.T) {
	f := start(t, nil)
	c := dial(t, f.path)
	c.tool = func(toolsExecute) (string, string) { return "", "" }
	c.must("runs.start", `{"agent_id":"a","intent":""}`)
	c.must("tools.register", `[{"name":"t","deadline_ms":50}]`)
	var waiting []<-chan frame
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
