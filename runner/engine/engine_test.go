package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// answering is an engine that gives the same answer to everything.
func answering(t *testing.T, status int, body string) *Engine {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	})
}

// serving is an engine that answers by a handler.
func serving(t *testing.T, answer http.HandlerFunc) *Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: answer}
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

// TestFilesOfAContainer: the name of a file has no symbolic links, also those to the root and to nothing.
func TestFilesOfAContainer(t *testing.T) {
	links := map[string]string{"/etc/real": "", "/etc": "", "/root": "/", "/up": "etc", "/etc/loop": "loop",
		"/etc/away": "/gone/x"}
	e := serving(t, func(w http.ResponseWriter, r *http.Request) {
		target, exists := links[r.URL.Query().Get("path")]
		mode := fs.FileMode(0)
		if target != "" {
			mode = fs.ModeSymlink
		}
		if !exists {
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(
			fmt.Appendf(nil, `{"mode": %d, "linkTarget": %q}`, uint32(mode), target)))
	})
	for file, want := range map[string]string{
		"/": "/ true", "/etc/real": "/etc/real true", "/root": "/ true", "/root/etc/real": "/etc/real true",
		"/up/real": "/etc/real true", "/up/none/x": "/etc/none/x false", "/root/none": "/none false",
		"/etc/away/y": "/gone/x/y false", "/etc/loop/x": "/etc/loop/x false",
	} {
		real, exists, err := e.File(t.Context(), "x", file)
		if got := fmt.Sprintf("%s %t", real, exists); got != want || err != nil {
			t.Errorf("%s is %s, want %s: %v", file, got, want, err)
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
		if !errors.Is(err, ErrUnreachable) || listening != 1 || len(got) != 1 || got[0].Name != "a" ||
			got[0].Action != "create" || got[0].ID != "1" || got[0].Labels["name"] != "a" || got[0].Image != "i" {
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
