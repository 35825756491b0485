package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// acceptTimeout is how long a request to a remote server may take to be accepted before its stream starts. Until then
// the answer can still be an HTTP status.
const acceptTimeout = time.Minute

// session is one client of a front, with its server.
type session struct {
	id, path string
	proxy    *Proxy
	remote   bool        // the server may answer with an HTTP status
	expired  atomic.Bool // the server does not know the session any more
	sending  sync.Mutex  // one message at a time

	done   chan struct{}
	ending sync.Once

	// The front's lock guards these.
	conns     map[net.Conn]bool // used by the client and not closed
	gone      *time.Timer       // nil while the client has a connection, or may have one
	goneSince time.Time

	mu       sync.Mutex
	auth     http.Header // of the last request
	idle     *time.Timer
	streams  map[string]*stream // by id; "0" is for the server's own messages
	order    []string           // of the request streams, oldest first
	requests map[string]*stream // by the id of a request without an answer
	progress map[string]*stream // by the token of a request that asks for progress
}

func newSession(id, path string) *session {
	s := &session{
		id: id, path: path, done: make(chan struct{}), conns: map[net.Conn]bool{},
		streams: map[string]*stream{"0": newStream("0")}, requests: map[string]*stream{},
		progress: map[string]*stream{},
	}
	s.idle = time.AfterFunc(idleTimeout, s.end)
	return s
}

// touch keeps a session alive, and stores its client's login for the server.
func (s *session) touch(auth http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.Reset(idleTimeout)
	s.auth = auth
}

// forward returns the client's headers to send on to a remote server.
func (s *session) forward() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.auth
}

// end ends the session, and so the input of its server.
func (s *session) end() {
	s.ending.Do(func() {
		s.idle.Stop()
		close(s.done)
	})
}

// ended reports whether the session has ended.
func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// relay runs the session until its server or its client is done.
func (s *session) relay(server *Server) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-s.done: // the client is gone: nobody reads the server's output
			server.Close()
		case <-ended:
		}
	}()
	err := s.proxy.relay(untilClosed(s.done), server)
	select {
	case <-s.done: // its output was closed
	default:
		if err != nil {
			s.proxy.warn(err.Error())
		}
	}
	close(ended)
	server.Close()
}

// untilClosed is a reader that blocks until it is closed. It is used as the client's input, since the session passes
// the client's messages directly to the proxy.
type untilClosed chan struct{}

func (c untilClosed) Read([]byte) (int, error) {
	<-c
	return 0, io.EOF
}

// Write accepts a line from the proxy for the client.
func (s *session) Write(line []byte) (int, error) {
	s.route(line[:len(line)-1])
	return len(line), nil
}

// say passes a message of the client to the proxy.
func (s *session) say(line []byte, list []incoming, batch bool) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	select {
	case <-s.done:
		return io.ErrClosedPipe
	default:
	}
	err := s.proxy.fromClient(line, list, batch)
	if err != nil {
		s.end()
	}
	return err
}

// post accepts a message or a batch, and answers with the server's answer.
func (s *session) post(w http.ResponseWriter, r *http.Request, line []byte, list []incoming, batch bool, fresh bool) {
	requests, tokens := asks(list)
	var st *stream
	if len(requests) > 0 {
		for _, key := range requests {
			if s.busy(key) {
				respondJSON(w, http.StatusBadRequest,
					errorResponse(unkey(key), jsonrpc.CodeInvalidRequest,
						"assay-run: another request with this id is in flight", nil))
				return
			}
		}
		st = s.open(requests, tokens)
	}
	if err := s.say(line, list, batch); err != nil {
		http.Error(w, "the session has ended: initialize again", http.StatusNotFound)
		return
	}
	if st == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if fresh {
		w.Header().Set(headerSession, s.id)
	}
	st.reading(s, 1)
	defer st.reading(s, -1)
	if !strings.Contains(r.Header.Get("Accept"), "text/event-stream") && r.Header.Get("Accept") != "*/*" {
		s.whole(w, r, st)
		return
	}
	if s.remote {
		s.settled(r.Context(), st)
	}
	if status := st.status(); status != nil {
		if status.Challenge != "" {
			w.Header().Set("WWW-Authenticate", status.Challenge)
		}
		w.Header().Del(headerSession)
		s.refused(status)
		respondJSON(w, status.Status, st.last())
		if fresh {
			s.end()
		}
		return
	}
	s.serve(w, r, st, 0)
}

// refused records that the server does not know the session any more. The client's next message gets a 404, upon
// which it initializes again; answers to earlier requests can still be read.
func (s *session) refused(status *httpStatus) {
	if status.Expired {
		s.expired.Store(true)
		s.idle.Reset(expiredTimeout)
	}
}

// settled waits until the server has accepted or answered a request of a stream.
func (s *session) settled(ctx context.Context, st *stream) {
	timeout := time.After(acceptTimeout)
	for {
		messages, _, news := st.after(0) // read first: a later message closes the channel
		s.mu.Lock()
		settled := st.accepted || st.open == 0
		s.mu.Unlock()
		if settled || len(messages) > 0 {
			return
		}
		select {
		case <-news:
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-timeout:
			return
		}
	}
}

// unkey returns the id of a key, as JSON.
func unkey(key string) jsontext.Value {
	if text, isText := strings.CutPrefix(key, `"`); isText {
		b, _ := json.Marshal(text)
		return b
	}
	return jsontext.Value(key)
}

// get gives the client the server's own messages, or the rest of a stream that broke off.
func (s *session) get(w http.ResponseWriter, r *http.Request) {
	id, after := "0", -1
	if last := r.Header.Get(headerLastSeen); last != "" {
		var ok bool
		if id, after, ok = parseEventID(last); !ok {
			http.Error(w, "the "+headerLastSeen+" header is not one of this server's ids", http.StatusBadRequest)
			return
		}
	}
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil || !st.has(after) {
		http.Error(w, "the stream is not kept any more", http.StatusNotFound)
		return
	}
	st.reading(s, 1)
	defer st.reading(s, -1)
	if after < 0 {
		after = st.next()
	}
	s.serve(w, r, st, after)
}

// route passes a message of the server to its stream. Answers and progress go to the stream of the request. Anything
// else goes to the stream for the server's own messages or, if nobody reads that, to the stream of the newest
// request.
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

// progressToken is the token of a request that asks for progress, or of a progress notification; "" if there is none.
func progressToken(m *jsonrpc.Message) string {
	if m.Params.Kind() != '{' {
		return ""
	}
	if token := jsonrpc.Value(m.Params, "progressToken"); token != nil {
		return jsonrpc.IDKey(token)
	}
	return jsonrpc.IDKey(jsonrpc.Value(jsonrpc.Value(m.Params, "_meta"), "progressToken"))
}

// maxStreams limits the streams whose messages are kept for a client that reconnects.
const maxStreams = 64

// open makes the stream for the answers to requests.
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

// accepted records that the server has not refused a request.
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

// cancelled stops waiting for a request that the client cancels.
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

// serve writes a stream's messages as events, from an index on, until all requests are answered or the client is
// gone.
func (s *session) serve(w http.ResponseWriter, r *http.Request, st *stream, index int) {
	control := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	send := func(b []byte) bool {
		control.SetWriteDeadline(time.Now().Add(slowWrite))
		_, err := w.Write(b)
		return err == nil
	}
	write := func(b []byte) bool { return send(b) && control.Flush() == nil }
	// With this first id, a client can resume before it got any message. Clients of earlier versions take an event
	// without data for a message.
	begin := []byte(": assay-run\n\n")
	if st.id != "0" && index == 0 && r.Header.Get(headerVersion) >= "2025-11-25" {
		begin = appendEvent(nil, st.id+"_0", nil)
	}
	// An answer that is there at once is sent in one write with the start.
	late := time.NewTimer(beginWait)
	defer late.Stop()
	if st.id == "0" {
		late.Reset(0)
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		// The order matters: a message after this moment closes the channel.
		s.mu.Lock()
		open := st.open
		s.mu.Unlock()
		messages, at, news := st.after(index)
		index = at
		out := begin
		for _, m := range messages {
			index++
			out = appendEvent(out, fmt.Sprintf("%s_%d", st.id, index), m)
		}
		if st.id != "0" && open == 0 { // nothing more will come
			if send(out) {
				st.given(index)
			}
			return
		}
		if len(messages) > 0 {
			if begin = nil; !write(out) {
				return
			}
			st.given(index)
			continue
		}
		select {
		case <-news:
		case <-late.C:
			if begin != nil && !write(begin) {
				return
			}
			begin = nil
		case <-tick.C:
			s.idle.Reset(idleTimeout)
			if !write([]byte(": still here\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

// whole answers with JSON, once all requests are answered.
func (s *session) whole(w http.ResponseWriter, r *http.Request, st *stream) {
	for {
		s.mu.Lock()
		open := st.open
		s.mu.Unlock()
		messages, _, news := st.after(0)
		if open == 0 {
			st.given(len(messages))
			if status := st.status(); status != nil {
				w.Header().Set("WWW-Authenticate", status.Challenge)
				s.refused(status)
				respondJSON(w, status.Status, st.last())
				return
			}
			respondJSON(w, http.StatusOK, st.last())
			return
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return
		case <-s.done:
			http.Error(w, "the session has ended: initialize again", http.StatusNotFound)
			return
		}
	}
}
