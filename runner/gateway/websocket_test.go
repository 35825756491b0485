package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func dialWS(t *testing.T, edit func(*Config)) *websocket.Conn {
	t.Helper()
	return dialOver(t, start(t, edit).Gateway)
}

// dialOver connects to a gateway over a WebSocket, until the test ends.
func dialOver(t *testing.T, g *Gateway) *websocket.Conn {
	t.Helper()
	url, err := g.Listen("ws", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

// A host that is too busy to send a message within the limit retries with a longer limit.
func TestAWebSocketThatPausesGoesOn(t *testing.T) {
	for limit := 300 * time.Millisecond; !pauses(t, limit); limit *= 2 {
		t.Logf("a message took longer than %v", limit)
	}
}

// pauses pauses within messages and between them. It returns false if a message took
// longer than the limit, so that the gateway may have ended the connection.
func pauses(t *testing.T, limit time.Duration) bool {
	conn := dialWS(t, func(c *Config) { c.Limits.MessageTimeout, c.Limits.WriteTimeout = limit, limit })
	defer conn.CloseNow()
	ctx := t.Context()
	answers := make(chan string)
	go func() {
		defer close(answers)
		for {
			_, b, err := conn.Read(ctx)
			if err != nil {
				return
			}
			answers <- string(b)
		}
	}()
	defer func() {
		conn.CloseNow()
		for range answers {
		}
	}()
	for range 2 {
		begin := time.Now()
		// In two frames: the gateway waits within the message.
		w, err := conn.Writer(ctx, websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(`{"jsonrpc":"2.0","id":1,`))
		conn.Ping(ctx) // sends the frame
		time.Sleep(limit / 5)
		w.Write([]byte(`"method":"runs.list"}`))
		w.Close()
		got := <-answers
		if time.Since(begin) >= limit {
			return false
		}
		if !strings.Contains(got, `"result"`) {
			t.Fatalf("answer %q", got)
		}
		time.Sleep(2 * limit) // no deadline of before is in force
		if err := conn.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func TestAWebSocketThatDoesNotReadIsCutOff(t *testing.T) {
	conn := dialWS(t, func(c *Config) { c.Limits.WriteTimeout = 200 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var err error
	for err == nil {
		err = conn.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"runs.list"}`))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("it is still served")
	}
}

// Frames that break the protocol end the connection with 1002, and a compressed message is limited by its
// uncompressed size.
func TestAWebSocketThatBreaksTheRules(t *testing.T) {
	f := start(t, func(c *Config) { c.Limits.Message = 1 << 16 })
	url, err := f.Listen("ws", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, frame := range map[string][]byte{
		"reserved bits":             {0x80 | 0x30 | 1, 0x80, 1, 2, 3, 4},
		"an unknown opcode":         {0x80 | 3, 0x80, 1, 2, 3, 4},
		"a frame without a mask":    {0x81, 0x02, 'h', 'i'},
		"a continuation of nothing": {0x80, 0x80, 1, 2, 3, 4},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: LOCALHOST.\r\nUpgrade: websocket\r\nConnection: "+
			"Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		br := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			if line, err = br.ReadString('\n'); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		conn.Write(frame)
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		got := make([]byte, 4)
		if _, err := io.ReadFull(br, got); err != nil || got[0] != 0x88 || int(got[2])<<8|int(got[3]) != 1002 {
			t.Errorf("%s: the answer is % x, %v, want a close with 1002", name, got, err)
		}
		conn.Close()
	}
	conn, resp, err := websocket.Dial(t.Context(), url,
		&websocket.DialOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if !strings.Contains(resp.Header.Get("Sec-Websocket-Extensions"), "permessage-deflate") {
		t.Errorf("compression is not negotiated: %v", resp.Header)
	}
	conn.SetReadLimit(-1)
	ask := func(text string) string {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, b, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := ask(`{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{}}` +
		strings.Repeat(" ", 2000)); !strings.Contains(got, `"result"`) {
		t.Errorf("a compressed message: %s", got)
	}
	if got := ask(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<20) + `"}`); !strings.Contains(got,
		"too large") {
		t.Errorf("a small message that unpacks to a mebibyte: %.200s", got)
	}
}

// A client without a place is refused in the answer to its handshake, not by a reset.
func TestEachOfFiveHundredWebSocketsGetsAnAnswer(t *testing.T) {
	url, err := start(t, nil).Gateway.Listen("ws", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"runs.list","params":{}}`)
	var clients, answered sync.WaitGroup
	var busy, served atomic.Int64
	all := make(chan struct{})
	for range 500 {
		answered.Add(1)
		clients.Go(func() {
			defer answered.Done()
			conn, res, err := websocket.Dial(t.Context(), url, nil)
			if err != nil {
				if res == nil || res.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("no answer: %v", err)
				}
				busy.Add(1)
				return
			}
			clients.Go(func() { <-all; conn.CloseNow() })
			for range 10 {
				if err := conn.Write(t.Context(), websocket.MessageText, request); err != nil {
					t.Errorf("send: %v", err)
					break
				}
			}
			if _, answer, err := conn.Read(t.Context()); err != nil ||
				!strings.Contains(string(answer), `"id":1,"result"`) {
				t.Errorf("answer %q, %v", answer, err)
			}
			served.Add(1)
		})
	}
	answered.Wait()
	close(all)
	clients.Wait()
	if busy.Load() == 0 || served.Load() < 256 {
		t.Errorf("%d were served, and %d told that there are too many", served.Load(), busy.Load())
	}
}
