package mcp

import (
	"bytes"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// route gives a message of the server to its stream. Answers and progress go to the
// stream of the request. Anything else goes to the stream for the server's own messages
// or, while nobody reads that one, to the stream of the newest request.
func (s *session) route(line []byte) {
	list, _, err := read(line)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var to *stream
	for _, m := range list {
		if m.err == nil && m.Method == "notifications/progress" {
			to = s.progress[progressToken(m.Message)]
		}
		if m.err != nil || m.Method != "" || m.ID == nil {
			continue
		}
		key := jsonrpc.IDKey(m.ID)
		if st := s.requests[key]; st != nil {
			to = st
			delete(s.requests, key)
			st.open--
		}
	}
	if to == nil {
		if to = s.streams["0"]; to.readers == 0 {
			for i := len(s.order) - 1; i >= 0; i-- {
				if st := s.streams[s.order[i]]; st.open > 0 {
					to = st
					break
				}
			}
		}
	}
	if to.add(bytes.Clone(line)) {
		s.proxy.warn("the MCP server sends messages faster than its client reads them: the oldest are dropped")
	}
}

// progressToken is the token of a request that asks for progress, or of a progress
// notification. It is "" if there is none.
func progressToken(m *jsonrpc.Message) string {
	if m.Params.Kind() != '{' {
		return ""
	}
	if token := jsonrpc.Value(m.Params, "progressToken"); token != nil {
		return jsonrpc.IDKey(token)
	}
	return jsonrpc.IDKey(jsonrpc.Value(jsonrpc.Value(m.Params, "_meta"), "progressToken"))
}

// maxStreams bounds the streams whose messages are kept for a client that reconnects.
const maxStreams = 64

// open makes the stream of a request's answers.
func (s *session) open(requests, tokens []string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := newStream(shortID())
	st.open = len(requests)
	s.streams[st.id] = st
	s.order = append(s.order, st.id)
	for _, key := range requests {
		if s.requests[key] == nil {
			s.requests[key] = st
		} else {
			st.open-- // refused by the proxy, whose answer goes to the first request's stream
		}
	}
	for _, token := range tokens {
		s.progress[token] = st
	}
	for i := 0; len(s.order) > maxStreams && i < len(s.order); {
		old := s.streams[s.order[i]]
		if old.open > 0 || old.readers > 0 {
			i++
			continue
		}
		delete(s.streams, s.order[i])
		maps.DeleteFunc(s.progress, func(_ string, st *stream) bool { return st == old })
		s.order = slices.Delete(s.order, i, i+1)
	}
	return st
}

// accepted marks a request as not refused by the server.
func (s *session) accepted(id jsontext.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.requests[jsonrpc.IDKey(id)]; st != nil {
		st.accepted = true
		st.wake()
	}
}

// busy reports whether a request with this id has no answer yet.
func (s *session) busy(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[key] != nil
}

// cancelled ends the waiting for a request that the client cancels.
func (s *session) cancelled(m *jsonrpc.Message) {
	id := cancelledID(m)
	if id == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.requests[jsonrpc.IDKey(id)]; st != nil {
		delete(s.requests, jsonrpc.IDKey(id))
		st.open--
		st.wake()
	}
}
