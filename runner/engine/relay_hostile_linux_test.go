package engine

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestRelayOfHostileClients: the daemon gets a client's request as the relay understood it, or not at all, and the
// client gets an answer.
func TestRelayOfHostileClients(t *testing.T) {
	var mu sync.Mutex
	var got []string
	daemon := filepath.Join(t.TempDir(), "d")
	l, err := net.Listen("unix", daemon)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body))
		mu.Unlock()
		fmt.Fprintf(w, "answer to %s", r.URL.Path)
	})}
	go s.Serve(l)
	defer s.Close()
	socket := relayed(t, New(Docker, daemon), "/p", Watch{})

	const create = "POST /v1.40/containers/create HTTP/1.1\r\nHost: x\r\n"
	plain := func(body string) string {
		return fmt.Sprintf(create+"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	}
	made := `POST /v1.40/containers/create {"HostConfig":{"CgroupParent":"/p"},"Image":"i"}`
	for _, c := range []struct {
		name, request string
		half          bool // the client closes its side at once
		answer        string
		daemon        []string
	}{
		{"a client that ends its side", "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n", true, "answer to /ping",
			[]string{"GET /ping "}},
		{"two requests at once", "GET /one HTTP/1.1\r\nHost: x\r\n\r\n" + plain(`{"Image":"i"}`), false,
			"answer to /v1.40/containers/create", []string{"GET /one ", made}},
		{"a chunked body", create +
			"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{\"Ima\r\n8\r\nge\":\"i\"}\r\n0\r\n\r\n",
			false, "answer to", []string{made}},
		{"two lengths", create +
			"Content-Length: 13\r\nTransfer-Encoding: chunked\r\nConnection: " +
			"close\r\n\r\nd\r\n{\"Image\":\"i\"}\r\n0\r\n\r\n", false, "answer to", []string{made}},
		{"a body after the question whether to send it",
			create + "Expect: 100-continue\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"Image\":\"i\"}", false,
			"answer to", []string{made}},
		{"an encoded path", strings.Replace(plain(`{"Image":"i"}`), "create", "%63reate", 1), false, "answer to",
			[]string{made}},
		{"text after the description", plain(`{"Image":"i"}{"HostConfig":{}}`), false, "answer to", []string{made}},
		{"two parents", plain(`{"HostConfig":{"CgroupParent":"/own","cgroupparent":""}}`), false,
			"HTTP/1.1 400 Bad Request", nil},
		{"two descriptions", plain(`{"HostConfig":{"CgroupParent":"/own"},"hostCONFIG":{"CgroupParent":""}}`), false,
			"the key appears twice", nil},
		{"a description without an end", plain(`{"Image":"` + strings.Repeat("i", maxRequest) + `"}`), false,
			"is longer than", nil},
		{"a header without an end", "GET /ping HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeader), true, "",
			nil},
		{"no request", "\x00\x01\x02\r\n\r\n", true, "", nil},
		{"half of a body", create + "Content-Length: 1000\r\n\r\n{", true, "unexpected EOF", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			mu.Lock()
			got = nil
			mu.Unlock()
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go func() {
				io.WriteString(conn, c.request)
				if c.half {
					conn.(*net.UnixConn).CloseWrite()
				}
			}()
			answer, _ := io.ReadAll(bufio.NewReader(conn))
			if !strings.Contains(string(answer), c.answer) || c.answer == "" && len(answer) > 0 {
				t.Errorf("answered %.300q, want %q", answer, c.answer)
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Join(got, "\n") != strings.Join(c.daemon, "\n") {
				t.Errorf("the daemon got %.300q, want %q", got, c.daemon)
			}
		})
	}
}
