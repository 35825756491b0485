package main

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/coder/websocket"
)

// Messages of the sizes that the gateway sends for one call.
const (
	execute = `{"jsonrpc":"2.0","id":10000,"method":"tools.execute","params":{"action_id":"a1","tool":"read_file","parameters":{"path":"/home/user/project/main.go"},"tool_call_id":"01KAKC9D2V3X7S4T9MZ0QH8W6R"}}`
	reply   = `{"jsonrpc":"2.0","id":7,"result":{"id":"p1","run_id":"run_01kakc9d2v3x7s4t9mz0qh8w6r","actions":[{"id":"a1","tool":"read_file","tool_call_id":"01KAKC9D2V3X7S4T9MZ0QH8W6R","call_id":"01KAKC9D2V3X7S4T9MZ0QH8W6R","outcome":{"kind":"success"},"output":{"content":"package main"},"recorded":true}]}}`
)

// exchange COMMAND... runs a command that finds a gateway in its environment, as under
// assay-run. This gateway does nothing: it sends the messages of a call over the same kinds
// of sockets, and ignores what it receives.
func exchange(args []string) {
	dir, err := os.MkdirTemp("", "assay-run-bench-*")
	check(err)
	defer os.RemoveAll(dir)
	lines, err := net.Listen("unix", filepath.Join(dir, "s"))
	check(err)
	go func() {
		conn, err := lines.Accept()
		check(err)
		pass(&unixWire{conn, bufio.NewReaderSize(conn, 32<<10)})
	}()
	frames, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go http.Serve(frames, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(rw, r, nil)
		check(err)
		pass(webSocketWire{conn})
	}))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "ASSAY_RUN_SOCKET="+lines.Addr().String(),
		"ASSAY_RUN_URL=ws://"+frames.Addr().String())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	check(cmd.Run())
}

// pass answers a proposal with a callback, and anything else with a reply.
func pass(w wire) {
	for {
		message, err := w.read()
		switch {
		case err != nil:
			return // the client is done
		case bytes.Contains(message[:min(len(message), 64)], []byte("proposal.submit")):
			w.send([]byte(execute))
		default:
			w.send([]byte(reply))
		}
	}
}
