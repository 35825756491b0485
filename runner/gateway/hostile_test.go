package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
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
		if err != nil || !strings.Contains(line, "too large") {
			t.Errorf("%s: answer %q, %v", name, line, err)
		}
		conn.Close()
	}
	// One of just the size is fine.
	c := dial(t, f.path)
	pad := strings.Repeat("x", 1<<16-200)
	if _, err := c.call("nothing", `{"pad":"`+pad+`"}`); err == nil || err.Code != jsonrpc.CodeMethodNotFound {
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
	if err != nil || !strings.Contains(line, "too long to arrive") {
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
	fmt.Fprintf(ws, "GET /?token=t HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: "+
		"Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
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
	ws.SetReadDeadline(time.Now().Add(5 * time.Minute))
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
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil ||
		!strings.Contains(line, "more than 2 connections") {
		t.Errorf("answer %q, %v", line, err)
	}
	a.must("runs.list", "{}")
}

// A client without a place has usually sent its first request before it is refused. It still gets the answer, and no
// reset.
func TestEachOfFiveHundredClientsGetsAnAnswer(t *testing.T) {
	f := start(t, nil)
	request := `{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{}}` + "\n"
	var clients, answered sync.WaitGroup
	all := make(chan struct{})
	var busy atomic.Int64
	for range 500 {
		answered.Add(1)
		clients.Go(func() {
			defer answered.Done()
			conn, err := net.Dial("unix", f.path)
			if err != nil {
				t.Error(err)
				return
			}
			clients.Go(func() { <-all; conn.Close() })
			for range 10 {
				if _, err := io.WriteString(conn, request); err != nil {
					t.Errorf("send: %v", err)
					break
				}
				time.Sleep(time.Millisecond)
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Errorf("no answer: %v", err)
			} else if strings.Contains(line, "more than 256 connections") {
				busy.Add(1)
			} else if !strings.Contains(line, `"id":1,"result"`) {
				t.Errorf("answer %q", line)
			}
		})
	}
	answered.Wait()
	close(all)
	clients.Wait()
	if n := busy.Load(); n == 0 {
		t.Error("nobody was told that there are too many")
	}
}

// The answer arrives before the end, and is not lost because of unread data.
func TestAWebSocketMessageTooLargeIsAnswered(t *testing.T) {
	conn := dialWS(t, func(c *Config) { c.Limits.Message = 1 << 16 })
	go conn.Write(t.Context(), websocket.MessageText, make([]byte, 8<<20))
	_, answer, err := conn.Read(t.Context())
	if err != nil || !strings.Contains(string(answer), "too large") {
		t.Errorf("answer %q, %v", answer, err)
	}
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("then %v, want a close that says so", err)
	}
}
