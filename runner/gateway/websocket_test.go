package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func dialWS(t *testing.T, edit func(*Config)) *websocket.Conn {
	t.Helper()
	f := start(t, edit)
	url, err := f.Listen("ws", "127.0.0.1:0")
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

func TestAWebSocketThatPausesGoesOn(t *testing.T) {
	const limit = time.Second // a busy host takes part of it
	conn := dialWS(t, func(c *Config) { c.Limits.MessageTimeout, c.Limits.WriteTimeout = limit, limit })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
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
	for range 2 {
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
		if got := <-answers; !strings.Contains(got, `"result"`) {
			t.Fatalf("answer %q", got)
		}
		time.Sleep(2 * limit) // no deadline of before is in force
		if err := conn.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	conn.CloseNow()
	for range answers {
	}
}

func TestAWebSocketThatDoesNotReadIsCutOff(t *testing.T) {
	conn := dialWS(t, func(c *Config) { c.Limits.WriteTimeout = 200 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var err error
	for err == nil {
		err = conn.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"method":"runs.list"}`))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("it is still served")
	}
}
