package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

// mcpRelay COMMAND... stands in front of a program as mcp --listen does, and checks nothing:
// it gives each session a server of its own and passes the messages on. It shows what HTTP
// on one side, and a process and its pipes on the other, cost by themselves.
func mcpRelay(args []string) {
	type piped struct {
		mu  sync.Mutex
		in  io.Writer
		out *bufio.Reader
	}
	var servers sync.Map
	start := func() *piped {
		cmd := exec.Command(args[0], args[1:]...)
		in, err := cmd.StdinPipe()
		check(err)
		out, err := cmd.StdoutPipe()
		check(err)
		cmd.Stderr = os.Stderr
		check(cmd.Start()) // ends when its input ends
		return &piped{in: in, out: bufio.NewReaderSize(out, 64<<10)}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("http://%s/mcp\n", ln.Addr())
	check(http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check(err)
		id := r.Header.Get("Mcp-Session-Id")
		first := id == ""
		if first {
			id = rand.Text()
			servers.Store(id, start())
			w.Header().Set("Mcp-Session-Id", id)
		}
		found, _ := servers.Load(id)
		s := found.(*piped)
		s.mu.Lock() // the client has one message in flight
		defer s.mu.Unlock()
		_, err = s.in.Write(append(body, '\n'))
		check(err)
		if string(body) == initialized {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		line, err := s.out.ReadSlice('\n')
		check(err)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n", line)
	})))
}
