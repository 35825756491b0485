//go:build unix

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

	"github.com/assay-run/assay-run/.ci/layertest"
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

// writers are clients that write turns in batches, each numbering its own.
type writers struct {
	acked []int    // batches that each client was told are recorded
	ids   []string // the run that each wrote to
	total atomic.Int64
	wg    sync.WaitGroup
}

const perBatch = 100

// writeTurns starts clients that write so many turns each to runs many runs, and
// returns when half of all turns are acknowledged.
func writeTurns(t *testing.T, socket string, clients, perClient, runs int) *writers {
	t.Helper()
	w := &writers{acked: make([]int, clients), ids: make([]string, clients)}
	half := make(chan struct{})
	for i := range clients {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		w.wg.Go(func() {
			br := bufio.NewReaderSize(conn, 1<<16)
			var answer struct {
				Result struct {
					RunID string `json:"run_id"`
					Count int    `json:"count"`
				} `json:"result"`
			}
			ask := func(method, params string) bool {
				if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method,
					params); err != nil {
					return false
				}
				line, err := br.ReadBytes('\n')
				return err == nil && json.Unmarshal(line, &answer) == nil && answer.Result.RunID != ""
			}
			if !ask("runs.start", fmt.Sprintf(`{"agent_id":"agent","intent":"","idempotency_key":"k%d"}`, i%runs)) {
				t.Errorf("client %d could not start", i)
				return
			}
			w.ids[i] = answer.Result.RunID
			var turns strings.Builder
			for b := range perClient / perBatch {
				turns.Reset()
				for n := range perBatch {
					if n > 0 {
						turns.WriteByte(',')
					}
					fmt.Fprintf(&turns, `{"index":0,"tool":"t","parameters":{"w":%d,"n":%d}}`, i, b*perBatch+n)
				}
				if !ask("runs.record_turns", `{"turns":[`+turns.String()+`]}`) {
					return
				}
				w.acked[i] = b + 1
				if w.total.Add(perBatch) == int64(clients*perClient/2) {
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
	return w
}

// killed waits for the clients after their server was, and gives the writers of
// each run.
func (w *writers) killed(t *testing.T, all int) map[string][]int {
	t.Helper()
	w.wg.Wait()
	if n := w.total.Load(); n == int64(all) {
		t.Fatalf("all %d turns were acknowledged: the server was not killed in the middle", n)
	}
	byRun := map[string][]int{}
	for i, id := range w.ids {
		byRun[id] = append(byRun[id], i)
	}
	return byRun
}

const (
	crashClients = 64
	crashTurns   = 10_000 // of each
)

// 64 clients write 10,000 turns each to 4 runs; somewhere in the middle the
// server is killed. What was acknowledged is on disk, contiguous and valid, and
// the next serve goes on with it, and seals it at its end.
func TestServeKilledKeepsWhatItAcknowledged(t *testing.T) {
	layertest.Host(t)
	const runs = 4
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
	w := writeTurns(t, socket, crashClients, crashTurns, runs)
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.Wait()
	byRun := w.killed(t, crashClients*crashTurns)
	if len(byRun) != runs {
		t.Fatalf("%d runs, want %d", len(byRun), runs)
	}
	for id, writers := range byRun {
		checkLiveRecord(t, filepath.Join(dir, "agent", id+".jsonl"), writers, w.acked)
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

// The same under a run: the runner is killed, and what it had acknowledged is
// what assay-run recover seals. The socket's directory goes with it.
func TestRunKilledKeepsTheTurnsItAcknowledged(t *testing.T) {
	layertest.Host(t)
	dir := t.TempDir()
	runtime, err := os.MkdirTemp("/dev/shm", "")
	if err != nil {
		t.Skipf("the socket's directory is elsewhere here: %v", err)
	}
	defer os.RemoveAll(runtime)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	run := self(t, dir, "-q", "-o", "run.tar.gz", "--", "sh", "-c",
		"echo $ASSAY_RUN_SOCKET > at.new; mv at.new at; sleep 600")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer run.Process.Kill()
	at := filepath.Join(dir, "at")
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(at); err == nil {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the run does not begin")
		}
	}
	socket, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	w := writeTurns(t, strings.TrimSpace(string(socket)), crashClients, crashTurns, 1)
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	run.Wait()
	for _, writers := range w.killed(t, crashClients*crashTurns) {
		if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
			t.Fatalf("recover: %v, %s", err, out)
		}
		verifyBundle(t, filepath.Join(dir, "run.tar.gz"), 0)
		if out, err := exec.Command("tar", "-C", dir, "-xf", filepath.Join(dir, "run.tar.gz"), schema.TurnsPath,
			schema.SessionPath).CombinedOutput(); err != nil {
			t.Fatalf("tar: %v, %s", err, out)
		}
		checkLiveRecord(t, filepath.Join(dir, schema.TurnsPath), writers, w.acked)
	}
	if left, _ := os.ReadDir(runtime); len(left) != 0 {
		t.Errorf("left after recovering: %v", left)
	}
}

// checkLiveRecord holds a live record against what its writers were told: each
// writer's turns in order and without a gap, at least as many as acknowledged,
// no batch torn apart, and only a last line that may be half.
func checkLiveRecord(t *testing.T, path string, writers, acked []int) {
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
	check := schema.NewLineDecoder(schema.TurnsPath)
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if _, err := check.Decode(line); err != nil {
			t.Fatalf("%s: line %d: %v", path, i, err)
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
		if next[w] < acked[w]*perBatch {
			t.Errorf("%s: client %d was acknowledged %d turns, %d are there", path, w, acked[w]*perBatch, next[w])
		}
	}
}
