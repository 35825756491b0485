package mcp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// upstream is a proxy's connection to a server: the client's messages and the answers, line by line.
func upstream(t *testing.T, r Remote) (say func(string), hear func() string) {
	t.Helper()
	server, err := r.Start()
	if err != nil {
		t.Fatal(err)
	}
	in, inW := io.Pipe()
	heard := make(chan string, 100)
	out, outW := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(Config{}).Relay(in, outW, server)
		outW.Close()
	}()
	go eachLine(out, func(line []byte) error { heard <- string(line); return nil })
	t.Cleanup(func() { inW.Close(); server.Close(); server.Signal(15); <-done })
	return func(line string) { fmt.Fprintln(inW, line) }, func() string {
		select {
		case line := <-heard:
			return line
		case <-time.After(30 * time.Second):
			t.Fatal("the client is told nothing")
		}
		return ""
	}
}

// A server that is gone is not just slow: waiting requests get an error.
func TestARemoteServerThatIsGone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	remote, err := Remote{URL: "http://user:pa55@" + ln.Addr().String() + "/mcp?key=s3cret"}.Start()
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	if err := New(Config{}).Relay(strings.NewReader(call7+"\n"), &told, remote); err != nil {
		t.Error(err)
	}
	remote.Close()
	if got := told.String(); !strings.Contains(got, `"id":7,"error":{"code":-32603`) ||
		!strings.Contains(got, "connection refused") || strings.Contains(got, "s3cret") ||
		strings.Contains(got, "pa55") {
		t.Errorf("the client was told %s", got)
	}
}

// A login goes to its server only, and nowhere that the server redirects to.
func TestALoginFollowsNoRedirectElsewhere(t *testing.T) {
	var elsewhere atomic.Int64
	other, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1) }))
	moved, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/new", http.StatusTemporaryRedirect)
		case "/new":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":7,"result":{"login":%q}}`, r.Header.Get("Authorization"))
		default:
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		}
	}))
	for path, want := range map[string]string{"/here": `"login":"Bearer s3cret"`,
		"/away": "it answered 307 Temporary Redirect"} {
		say, hear := upstream(t, Remote{URL: moved + path, Header: http.Header{"Authorization": {"Bearer s3cret"}}})
		say(call7)
		if got := hear(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another host got %d requests", n)
	}
}

// Each request of a batch that the server refuses is answered.
func TestABatchThatTheServerRefuses(t *testing.T) {
	url, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no batches", http.StatusInternalServerError)
	}))
	say, hear := upstream(t, Remote{URL: url})
	say(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"two","method":"ping"}]`)
	if got := hear() + hear(); !strings.Contains(got, `"id":1,"error"`) ||
		!strings.Contains(got, `"id":"two","error"`) {
		t.Errorf("the client was told %s", got)
	}
}

// A server's requests right after the start need an open stream.
func TestRequestsWaitForTheStreamOfWhatIsSaidUnasked(t *testing.T) {
	var stands atomic.Bool
	url, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodGet:
			time.Sleep(100 * time.Millisecond)
			stands.Store(true)
			w.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case bytes.Contains(body, []byte("tools/call")):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":7,"result":{"stands":%v}}`, stands.Load())
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	say, hear := upstream(t, Remote{URL: url})
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(call7)
	if got := hear(); !strings.Contains(got, `"stands":true`) {
		t.Errorf("the call came before the stream: %s", got)
	}
}
