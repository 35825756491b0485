package mcp

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// forgetful is a server that forgets its sessions when it is told to, as one that restarts or whose sessions expire. It
// then answers with a status.
type forgetful struct {
	status int
	next   http.Handler

	mu    sync.Mutex
	known map[string]bool
	gone  map[string]bool
	began int // sessions
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	f.mu.Lock()
	gone := f.gone[id]
	f.mu.Unlock()
	if gone {
		http.Error(w, "no such session", f.status)
		return
	}
	f.next.ServeHTTP(w, r)
	if id := w.Header().Get(headerSession); id != "" && r.Method == http.MethodPost {
		f.mu.Lock()
		if !f.known[id] {
			f.known[id] = true
			f.began++
		}
		f.mu.Unlock()
	}
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.known {
		f.gone[id] = true
	}
}

// TestSessionsThatExpire has the server of the official SDK forget its sessions twice, under a client of the SDK. Over
// stdio, each loss costs one call an error. Over HTTP, the client gets the 404 and connects again.
func TestSessionsThatExpire(t *testing.T) {
	for name, status := range map[string]int{"404, as the protocol says": 404, "400, as after a restart": 400} {
		server := func(t *testing.T) (*forgetful, string) {
			f := &forgetful{status: status, known: map[string]bool{}, gone: map[string]bool{}}
			url, _ := overHTTP(t, nil, func(h http.Handler) http.Handler { f.next = h; return f })
			return f, url
		}
		echo := func(ctx context.Context, c *sdk.ClientSession) error {
			_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hi"}})
			return err
		}
		t.Run("stdio: "+name, func(t *testing.T) {
			f, url := server(t)
			remote, err := Remote{URL: url}.Start()
			if err != nil {
				t.Fatal(err)
			}
			in, inW := io.Pipe()
			out, outW := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = New(Config{}).Relay(in, outW, remote)
				_ = outW.Close()
			}()
			t.Cleanup(func() { _ = inW.Close(); remote.Signal(15); <-done })
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			c, err := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, nil).
				Connect(ctx, &sdk.IOTransport{Reader: out, Writer: inW}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 3 {
				if err := echo(ctx, c); err != nil {
					t.Fatalf("a call in round %d: %v", round, err)
				}
				f.forget()
				if err := echo(ctx, c); err == nil {
					t.Fatalf("a call whose session has expired has no error")
				}
			}
			if err := echo(ctx, c); err != nil {
				t.Errorf("after all: %v", err)
			}
			if f.began != 4 {
				t.Errorf("%d sessions began, want 4", f.began)
			}
		})
		t.Run("HTTP: "+name, func(t *testing.T) {
			f, upstream := server(t)
			url, _ := front(t, &Front{}, Config{}, func(forward func() http.Header) (*Server, error) {
				return Remote{URL: upstream, Forward: forward}.Start()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			statuses := &statuses{}
			connect := func() *sdk.ClientSession {
				c, err := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, nil).Connect(ctx,
					&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: statuses}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			c := connect()
			if err := echo(ctx, c); err != nil {
				t.Fatal(err)
			}
			f.forget()
			statuses.take()
			if err := echo(ctx, c); err == nil {
				t.Fatal("a call whose session has expired has no error")
			}
			if got := statuses.take(); len(got) == 0 || got[0] != http.StatusNotFound {
				t.Errorf("the client got the statuses %v, want 404", got)
			}
			if err := echo(ctx, connect()); err != nil {
				t.Errorf("after the client has connected again: %v", err)
			}
		})
	}
}

// statuses records the statuses of the answers to messages.
type statuses struct {
	mu  sync.Mutex
	all []int
}

func (s *statuses) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, resp.StatusCode)
	}
	return resp, err
}

func (s *statuses) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}
