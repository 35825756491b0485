package engine

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// answering is an engine that gives the same answer to everything.
func answering(t *testing.T, status int, body string) *Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	})}
	go s.Serve(l)
	e := New(Docker, socket)
	t.Cleanup(func() { e.Close(); s.Close() })
	return e
}

// TestBadAnswers: an invalid answer is an error, and never a container.
func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		is     error
	}{
		"torn":               {200, `{"Id":"0a`, nil},
		"nothing":            {200, ``, nil},
		"another type":       {200, `{"Id":7}`, nil},
		"no JSON":            {200, `<html>`, nil},
		"no such container":  {404, `{"message":"No such container: x"}`, ErrNotFound},
		"an error":           {500, `{"message":"broken"}`, nil},
		"an error, unspoken": {502, `bad gateway`, nil},
	} {
		_, err := answering(t, c.status, c.body).Container(t.Context(), "x")
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a/../b", "a?b", "a%2f"} {
		if _, err := answering(t, 200, `{}`).Container(t.Context(), name); err == nil {
			t.Errorf("a container is named %q", name)
		}
	}
}

// TestEventsEnd: a stream of events that ends, is cut off or never ends its line is from an engine that does not
// answer; earlier events count.
func TestEventsEnd(t *testing.T) {
	const good = `{"Action":"create","Actor":{"ID":"1","Attributes":{"name":"a","image":"i"}}}` + "\n"
	for name, body := range map[string]string{
		"ended":   good,
		"torn":    good + `{"Action":"st`,
		"no JSON": good + "\x00\x00\n",
		"huge":    good + strings.Repeat("x", maxEvent+1),
	} {
		var got []Event
		listening := 0
		err := answering(t, 200, body).Events(t.Context(), "label", "l", func() {
			listening++
		}, func(e Event) { got = append(got, e) })
		if !errors.Is(err, ErrUnreachable) || listening != 1 || len(got) != 1 ||
			got[0] != (Event{"create", "1", "a", "i"}) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

// TestNobodyListens: a socket without a listener is unreachable, and a watch that starts there ends.
func TestNobodyListens(t *testing.T) {
	e := New(Docker, filepath.Join(t.TempDir(), "none"))
	if _, err := e.Container(context.Background(), "x"); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
	if _, err := Find(Docker); err == nil || !strings.Contains(err.Error(), "only an engine on this host") {
		t.Errorf("another host's engine: %v", err)
	}
	t.Setenv("DOCKER_HOST", "unix:///none")
	if _, err := Find(Docker); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if _, err := Find("lxc"); err == nil {
		t.Error("there is an engine lxc")
	}
}
