package mcp

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a stream: of messages kept after a reader got them, and of all kept messages; how often a reader gets a
// keep-alive, how long it may take to read, and how long it waits for the stream to start.
const (
	maxGiven    = 1000
	maxGivenLen = 8 << 20 // bytes
	maxKept     = 10_000
	maxKeptLen  = maxLine // bytes
	beat        = 15 * time.Second
	slowWrite   = 30 * time.Second
	beginWait   = 20 * time.Millisecond // to send the first message together with the start
)

// stream has the server's messages for one request of a client, or the server's own messages. They are kept, so that
// a client whose connection broke off can get the rest.
type stream struct {
	id string

	// The session's lock guards the rest.
	open     int // requests without an answer
	readers  int
	accepted bool // the server has not refused the request with an HTTP status

	mu      sync.Mutex
	kept    [][]byte // messages from first on
	first   int      // index of the first kept message; indices start at 1
	size    int
	sent    int           // index of the last message that a reader got
	dropped bool          // a message was dropped that no reader got
	news    chan struct{} // closed and replaced when there is more
}

func newStream(id string) *stream { return &stream{id: id, first: 1, news: make(chan struct{})} }

func shortID() string { return rand.Text()[:13] }

// parseEventID splits the id of an event: "<stream>_<index>".
func parseEventID(id string) (stream string, index int, ok bool) {
	stream, text, ok := strings.Cut(id, "_")
	index, err := strconv.Atoi(text)
	return stream, index, ok && err == nil && index >= 0
}

// add keeps a message. It reports whether it dropped a message that no reader got, for the first time in this stream.
func (st *stream) add(message []byte) (dropped bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.kept = append(st.kept, message)
	st.size += len(message)
	for len(st.kept) > 1 {
		given := st.first <= st.sent
		if given && len(st.kept) <= maxGiven && st.size <= maxGivenLen || !given && len(st.kept) <= maxKept &&
			st.size <= maxKeptLen {
			break
		}
		if !given && !st.dropped {
			st.dropped, dropped = true, true
		}
		st.size -= len(st.kept[0])
		st.kept[0] = nil
		st.kept = st.kept[1:]
		st.first++
	}
	close(st.news)
	st.news = make(chan struct{})
	return dropped
}

// wake makes readers check again.
func (st *stream) wake() {
	st.mu.Lock()
	defer st.mu.Unlock()
	close(st.news)
	st.news = make(chan struct{})
}

// has reports whether all messages after an index are kept.
func (st *stream) has(after int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return after < 0 || after >= st.first-1 && after < st.first+len(st.kept)
}

// next is the index before the first message that no reader got.
func (st *stream) next() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return max(st.sent, st.first-1)
}

// after returns the kept messages after an index, and the index before them.
func (st *stream) after(index int) (messages [][]byte, at int, news chan struct{}) {
	st.mu.Lock()
	defer st.mu.Unlock()
	at = max(index, st.first-1)
	if from := at + 1 - st.first; from < len(st.kept) {
		messages = slices.Clone(st.kept[from:])
	}
	return messages, at, st.news
}

func (st *stream) given(index int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sent = max(st.sent, index)
}

func (st *stream) reading(s *session, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.readers += n
}

func (st *stream) last() []byte {
	messages, _, _ := st.after(0)
	if len(messages) == 0 {
		return nil
	}
	return messages[len(messages)-1]
}

// status returns the HTTP status with which a remote server refused a request, if that is the only message.
func (st *stream) status() *httpStatus {
	var m struct {
		Error struct {
			Data jsontext.Value `json:"data"`
		} `json:"error"`
	}
	var s httpStatus
	messages, _, _ := st.after(0)
	if len(messages) != 1 || json.Unmarshal(messages[0], &m) != nil || m.Error.Data.Kind() != '{' ||
		json.Unmarshal(m.Error.Data, &s) != nil {
		return nil
	}
	if s.Status != http.StatusUnauthorized && s.Status != http.StatusForbidden && !s.Expired {
		return nil
	}
	return &s
}
