package kubetest

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

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

func event(kind string, object any) map[string]any {
	return map[string]any{"type": kind, "object": object}
}
