package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// pythonClient is the gateway's client in Python, on the path of a script.
func pythonClient(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("the scripted client needs python3: %v", err)
	}
	client, err := filepath.Abs("../../runner/gateway/testdata")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("tool: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := pythonClient(t, "testdata/serve.py", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// 64 clients write 10,000 turns each to 4 runs; somewhere in the middle the
// server is killed. What was acknowledged is on disk, contiguous and valid, and
// the next serve seals it.
func TestServeKilledKeepsWhatItAcknowledged(t *testing.T) {
	const clients, perClient, batch, runs = 64, 10_000, 100, 4
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	serve := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("assay-run", "serve", "--dir", dir, "--listen", "unix:"+socket)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("serve says nothing: %v, %s", err, &stderr)
		}
		return cmd, &stderr
	}
	server, _ := serve()
	defer server.Process.Kill()

	var total atomic.Int64
	acked := make([]int, clients) // batches of each client
	ids := make([]string, clients)
	var wg sync.WaitGroup
	half := make(chan struct{})
	for w := range clients {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		wg.Go(func() {
			br := bufio.NewReaderSize(conn, 1<<16)
			var answer struct {
				Result struct {
					RunID string `json:"run_id"`
					Count int    `json:"count"`
				} `json:"result"`
			}
			ask := func(method, params string) bool {
				if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params); err != nil {
					return false
				}
				line, err := br.ReadBytes('\n')
				return err == nil && json.Unmarshal(line, &answer) == nil && answer.Result.RunID != ""
			}
			if !ask("runs.start", fmt.Sprintf(`{"agent_id":"agent","intent":"","idempotency_key":"k%d"}`, w%runs)) {
				t.Errorf("client %d could not start", w)
				return
			}
			ids[w] = answer.Result.RunID
			var turns strings.Builder
			for b := range perClient / batch {
				turns.Reset()
				for i := range batch {
					if i > 0 {
						turns.WriteByte(',')
					}
					fmt.Fprintf(&turns, `{"index":0,"tool":"t","parameters":{"w":%d,"n":%d}}`, w, b*batch+i)
				}
				if !ask("runs.record_turns", `{"turns":[`+turns.String()+`]}`) {
					return
				}
				acked[w] = b + 1
				if total.Add(batch) == clients*perClient/2 {
					close(half)
				}
			}
		})
	}
	select {
	case <-half:
	case <-time.After(3 * time.Minute):
		t.Fatal("the clients got nowhere")
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Wait()
	wg.Wait()
	if n := total.Load(); n < clients*perClient/2 || n == clients*perClient {
		t.Fatalf("%d turns were acknowledged: the server was not killed in the middle", n)
	}

	byRun := map[string][]int{}
	for w, id := range ids {
		byRun[id] = append(byRun[id], w)
	}
	if len(byRun) != runs {
		t.Fatalf("%d runs, want %d", len(byRun), runs)
	}
	for id, writers := range byRun {
		checkLiveRecord(t, filepath.Join(dir, "agent", id+".jsonl"), writers, acked, batch)
	}

	// The next one seals them.
	server, stderr := serve()
	server.Process.Signal(os.Interrupt)
	if err := server.Wait(); err != nil {
		t.Errorf("serve: %v, %s", err, stderr)
	}
	for id := range byRun {
		bundle := filepath.Join(dir, "agent", id+".tar.gz")
		if out, err := exec.Command("assay-run", "verify", bundle).CombinedOutput(); err != nil {
			t.Errorf("verify: %v, %s", err, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".spool", "*")); len(left) > 0 {
		t.Errorf("spools are left: %q", left)
	}
}

// checkLiveRecord holds a live record against what its writers were told: each
// writer's turns in order and without a gap, at least as many as acknowledged,
// no batch torn apart, and only a last line that may be half.
func checkLiveRecord(t *testing.T, path string, writers, acked []int, batch int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if end := bytes.LastIndexByte(data, '\n'); end+1 != len(data) {
		t.Logf("%s ends in a torn line of %d bytes", path, len(data)-end-1)
		data = data[:end+1]
	}
	next := map[int]int{}
	check, err := schema.NewLineChecker(schema.TurnV0)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if i%97 == 0 { // objects in lines make the whole check slow
			if _, err := check.Check(line); err != nil {
				t.Fatalf("%s: line %d: %v", path, i, err)
			}
		}
		var turn struct {
			Index      int
			Seq        int
			Parameters struct{ W, N int }
		}
		if err := json.Unmarshal(line, &turn); err != nil {
			t.Fatalf("%s: line %d: %v", path, i, err)
		}
		if p := turn.Parameters; turn.Index != i || turn.Seq != i || p.N != next[p.W] {
			t.Fatalf("%s: line %d: %s, client %d had %d turns", path, i, line, p.W, next[p.W])
		}
		next[turn.Parameters.W]++
	}
	for _, w := range writers {
		if next[w] < acked[w]*batch {
			t.Errorf("%s: client %d was acknowledged %d turns, %d are there", path, w, acked[w]*batch, next[w])
		}
	}
}
