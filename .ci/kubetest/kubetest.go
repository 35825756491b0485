// Package kubetest answers as Kubernetes documents that its API server does, about pods
// alone: lists, watches, bookmarks and errors (kubernetes.io/docs/reference/using-api/api-concepts).
// It is not Kubernetes, and has no kubelet.
package kubetest

import (
	"encoding/pem"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/v1"
)

// Node is the name of the node that all pods are on.
const Node = "node-1"

// What Break makes the server do wrong with the next watch.
const (
	Gone      = "gone"      // answer 410
	GoneLater = "gonelater" // send an ERROR event with the code 410
	Cut       = "cut"       // cut the connection in the middle of an event
	Half      = "half"      // end the answer in the middle of an event
	Huge      = "huge"      // send an event of many MiB
	Forbid    = "forbid"    // answer 403
	Redirect  = "redirect"  // answer 302
)

// Server is an API server. Its methods are safe for concurrent use.
type Server struct {
	*httptest.Server
	Account string // the directory with the files of a service account

	mu       sync.Mutex
	changed  chan struct{} // closed, and made again, when anything below changes
	token    string
	version  int
	pods     map[string]Pod // by UID
	log      []change
	oldest   int // the version that log begins after
	faults   []string
	broken   int // how many times Break was called
	requests []Request
}

// Pod is a pod.
type Pod struct {
	UID, Name string
	Labels    map[string]string
	Phase     string
	Ran       bool // its container has run
}

// Request is what a client asked for.
type Request struct {
	Path  string
	Query url.Values
}

type change struct {
	version int
	kind    string
	pod     Pod
}

// New starts a server, which ends with the test.
func New(t *testing.T) *Server {
	s := &Server{Account: t.TempDir(), changed: make(chan struct{}), version: 100, pods: map[string]Pod{}}
	s.oldest = s.version
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(func() { s.Break(""); s.CloseClientConnections(); s.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(s.Account, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Rotate(t, "token-one")
	return s
}

// Env is the environment of a pod that this server is for.
func (s *Server) Env() []string {
	at, _ := url.Parse(s.URL)
	return []string{"KUBERNETES_SERVICE_HOST=" + at.Hostname(), "KUBERNETES_SERVICE_PORT=" + at.Port(),
		"NODE_NAME=" + Node}
}

// Rotate gives the service account another token, and refuses the one from before.
func (s *Server) Rotate(t *testing.T, token string) {
	if err := os.WriteFile(filepath.Join(s.Account, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.change(func() { s.token = token })
}

// Set makes or changes a pod.
func (s *Server) Set(p Pod) {
	s.change(func() {
		kind := "MODIFIED"
		if _, ok := s.pods[p.UID]; !ok {
			kind = "ADDED"
		}
		s.version++
		s.pods[p.UID] = p
		s.log = append(s.log, change{s.version, kind, p})
	})
}

// Delete deletes a pod.
func (s *Server) Delete(uid string) {
	s.change(func() {
		s.version++
		s.log = append(s.log, change{s.version, "DELETED", s.pods[uid]})
		delete(s.pods, uid)
	})
}

// Break ends the watches that are open, as the server does after a while, and does something
// wrong at the next one. After a Gone, the server no longer knows what happened before.
func (s *Server) Break(fault string) {
	s.change(func() {
		s.broken++
		if fault != "" {
			s.faults = append(s.faults, fault)
		}
		if fault == Gone || fault == GoneLater {
			s.log, s.oldest = nil, s.version
		}
	})
}

// Faults is how many faults are still to come.
func (s *Server) Faults() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults)
}

// Requests are those that the server got and did not refuse.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request{}, s.requests...)
}

func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	allowed := r.Header.Get("Authorization") == "Bearer "+s.token
	if allowed {
		s.requests = append(s.requests, Request{r.URL.Path, q})
	}
	s.mu.Unlock()
	switch {
	case !allowed:
		refuse(w, http.StatusUnauthorized, "Unauthorized")
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" && r.URL.Path != "/api/v1/namespaces/evals/pods":
		refuse(w, http.StatusNotFound, "not found")
	case q.Get("watch") == "1":
		s.watch(w, r, q)
	default:
		s.list(w, q)
	}
}

// list sends pages of two pods, whatever the limit is, as a server may.
func (s *Server) list(w http.ResponseWriter, q url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, next := []any{}, ""
	for uid, p := range s.sorted() {
		if !selected(p, q) || uid <= q.Get("continue") {
			continue
		}
		if len(items) == 2 {
			break
		}
		items, next = append(items, p.object(s.version)), uid
	}
	if len(items) < 2 {
		next = ""
	}
	send(w, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": items,
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version), "continue": next}})
}

// sorted are the pods in the order of their UIDs.
func (s *Server) sorted() iter.Seq2[string, Pod] {
	return func(yield func(string, Pod) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
			if !yield(uid, s.pods[uid]) {
				return
			}
		}
	}
}

// watch sends what happens after a version until Break, the client or the server ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q url.Values) {
	at, err := strconv.Atoi(q.Get("resourceVersion"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid resource version")
		return
	}
	s.mu.Lock()
	fault := ""
	if len(s.faults) > 0 {
		fault, s.faults = s.faults[0], s.faults[1:]
	}
	broken := s.broken
	s.mu.Unlock()
	switch fault {
	case Gone:
		refuse(w, http.StatusGone, "too old resource version")
		return
	case Redirect:
		http.Redirect(w, r, "/api/v1/namespaces/evals/pods", http.StatusFound)
		return
	case Forbid:
		refuse(w, http.StatusForbidden,
			`pods is forbidden: User "system:serviceaccount:assay-run:assay-run" cannot watch resource "pods"`)
		return
	}
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	switch fault {
	case GoneLater:
		send(w, event("ERROR", status(http.StatusGone, "too old resource version")))
		return
	case Cut, Half:
		fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"Pod","meta`)
		flush()
		if fault == Cut {
			panic(http.ErrAbortHandler)
		}
		return
	case Huge:
		fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"%s"}}`+"\n", strings.Repeat("x", 8<<20))
		return
	}
	for {
		s.mu.Lock()
		changed, ended := s.changed, s.broken != broken
		if at < s.oldest {
			s.mu.Unlock()
			send(w, event("ERROR", status(http.StatusGone, "too old resource version")))
			return
		}
		for _, c := range s.log {
			if c.version <= at {
				continue
			}
			at = c.version
			if selected(c.pod, q) {
				send(w, event(c.kind, c.pod.object(c.version)))
			} else if q.Get("allowWatchBookmarks") == "true" {
				send(w, event("BOOKMARK",
					map[string]any{"kind": "Pod", "metadata": map[string]any{"resourceVersion": fmt.Sprint(at)}}))
			}
		}
		s.mu.Unlock()
		flush()
		if ended {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// selected reports whether the API server selects the pod with these selectors.
func selected(p Pod, q url.Values) bool {
	if q.Get("fieldSelector") != "spec.nodeName="+Node {
		return false
	}
	key, want, exact := strings.Cut(q.Get("labelSelector"), "=")
	value, has := p.Labels[key]
	return has && (!exact || value == want)
}

func (p Pod) object(version int) map[string]any {
	state := map[string]any{"waiting": map[string]any{"reason": "ContainerCreating"}}
	if p.Ran {
		state = map[string]any{"running": map[string]any{}}
	}
	return map[string]any{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{"name": p.Name, "namespace": "evals", "uid": p.UID, "labels": p.Labels,
			"resourceVersion": fmt.Sprint(version)},
		"spec": map[string]any{"nodeName": Node,
			"containers": []any{map[string]any{"name": "agent", "image": "registry.example/agent:1"}}},
		"status": map[string]any{"phase": p.Phase,
			"containerStatuses": []any{map[string]any{"name": "agent", "restartCount": 0, "state": state}}},
	}
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	send(w, status(code, message))
}

func status(code int, message string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
}

func send(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
