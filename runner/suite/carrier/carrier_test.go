//go:build linux

package carrier

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nats-io/nats.go"
)

type work struct {
	N int `json:"n"`
}

// serve starts a server and connects to it.
func serve(t *testing.T) (*Server, *nats.Conn) {
	t.Helper()
	dir := t.TempDir()
	s, err := Serve(filepath.Join(dir, "nats"), ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s, nc
}

func pair(t *testing.T) (*Hub, *Client, func(Handlers)) {
	t.Helper()
	began := time.Now()
	_, nc := serve(t)
	h, err := NewHub(t.Context(), nc, "suite", Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewClient(nc, "w", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Join("suite")
	t.Logf("started in %v", time.Since(began))
	return h, l, func(to Handlers) {
		stop, err := h.Listen(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
}

func TestWorkIsTakenOnceAndToldOf(t *testing.T) {
	h, l, listen := pair(t)
	told := make(chan Message, 10)
	listen(Handlers{OnMessage: func(m Message) { told <- m; m.Done() }, OnLoss: func() {},
		OnQuestion: func(q Question) any { return q.From + string(q.Data) }})
	var numbers []uint64
	for i := range 6 {
		n, err := h.Publish(t.Context(), string(rune('a'+i/2)), work{i / 2}) // each one twice, but stored once
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	if taken, err := h.Taken(t.Context(), numbers[0]); err != nil || taken {
		t.Errorf("before: taken %v, %v", taken, err)
	}
	for i := range 3 {
		var got work
		if err := l.Next(t.Context(), &got); err != nil || got.N != i {
			t.Fatalf("it took %+v, %v", got, err)
		}
	}
	if taken, err := h.Taken(t.Context(), numbers[4]); err != nil || !taken {
		t.Errorf("after: taken %v, %v", taken, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Next(ctx, &work{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without work: %v", err)
	}
	if err := l.Send(t.Context(), "k", work{7}); err != nil {
		t.Fatal(err)
	}
	if got := <-told; string(got.Data) != `{"n":7}` || got.From != "w" {
		t.Errorf("%s told %s", got.From, got.Data)
	}
	var answer string
	if err := l.Ask(t.Context(), 5, &answer); err != nil || answer != "w5" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

func TestABundleIsCarriedInParts(t *testing.T) {
	h, l, _ := pair(t)
	for _, size := range []int64{0, 1, partBytes, partBytes + 1, 2*partBytes + 17} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * i >> 7)
		}
		if err := l.Store(t.Context(), "b", bytes.NewReader(want), size); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := h.Fetch(t.Context(), "b", size, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes of %d came, %v", got.Len(), size, err)
		}
		if err := h.Forget(t.Context(), "b", size); err != nil {
			t.Error(err)
		}
		if err := h.Fetch(t.Context(), "b", size, io.Discard); !errors.Is(err, ErrNoBundle) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

func TestAWorkspaceIsCarriedWhole(t *testing.T) {
	h, l, _ := pair(t)
	var got bytes.Buffer
	if err := l.Workspace(t.Context(), "w", &got); !errors.Is(err, ErrNoWorkspace) {
		t.Errorf("before it is sent: %v", err)
	}
	broken := errors.New("the source has changed")
	begun := io.MultiReader(bytes.NewReader(make([]byte, workspacePart+1)), iotest.ErrReader(broken))
	if err := h.SendWorkspace(t.Context(), "w", begun); !errors.Is(err, broken) {
		t.Errorf("it is sent in spite of %v: %v", broken, err)
	}
	if err := l.Workspace(t.Context(), "w", &got); !errors.Is(err, ErrNoWorkspace) || got.Len() > 0 {
		t.Errorf("%d bytes of what could not be sent came, %v", got.Len(), err)
	}
	for _, size := range []int{0, 1, workspacePart, 3*workspacePart + 17} {
		want, name := bytes.Repeat([]byte{7}, size), strconv.Itoa(size)
		if err := h.SendWorkspace(t.Context(), name, bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		if err := h.SendWorkspace(t.Context(), name, iotest.ErrReader(broken)); err != nil {
			t.Errorf("it is sent twice: %v", err)
		}
		got.Reset()
		if err := l.Workspace(t.Context(), name, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes of %d came, %v", got.Len(), size, err)
		}
	}
}

// refuses makes the server answer the first requests on a subject with another answer. It returns how many of these are
// left.
func refuses(t *testing.T, s *Server, api string, times int32, answer *nats.Msg) *atomic.Int32 {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	from, to, left := "$JS.API."+api, nats.NewInbox(), &atomic.Int32{}
	left.Store(times)
	account := s.server.GlobalAccount()
	if _, err := nc.Subscribe(to, func(m *nats.Msg) {
		if left.Add(-1) == 0 {
			account.RemoveMapping(from)
		}
		_ = m.RespondMsg(answer)
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(nc.Flush(), account.AddMapping(from, to)); err != nil {
		t.Fatal(err)
	}
	return left
}

// TestWhatAServerRefusesOnceIsAskedAgain has a server that first answers like one without a leader, or like one that
// lags behind.
func TestWhatAServerRefusesOnceIsAskedAgain(t *testing.T) {
	away := &nats.Msg{Data: []byte(`{"error": {"code": 503, "err_code": 10008, "description": "JetStream is away"}}`)}
	s, nc := serve(t)
	n := namesOf("suite")
	first, err := NewHub(t.Context(), nc, "suite", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Publish(t.Context(), "a", work{1}); err != nil {
		t.Fatal(err)
	}
	purges := refuses(t, s, "STREAM.PURGE."+n.workStream, 2, away)
	h, err := NewHub(t.Context(), nc, "suite", Options{})
	if err != nil || purges.Load() != 0 {
		t.Fatalf("a purge that is refused: %v, %d refusals left", err, purges.Load())
	}
	if info, err := h.work.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("the work of the hub before is still there: %v, %v", info, err)
	}

	l, err := NewClient(nc, "w", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Join("suite")
	if err := l.Store(t.Context(), "b", bytes.NewReader([]byte("bundle")), 6); err != nil {
		t.Fatal(err)
	}
	part := base64.URLEncoding.EncodeToString([]byte(partName("b", 0)))
	object := "OBJ_" + n.bundles + ".$O." + n.bundles + ".M." + part
	lags := refuses(t, s, "DIRECT.GET."+object, 1, &nats.Msg{Header: nats.Header{"Status": {"404"}}})
	if err := h.Fetch(t.Context(), "b", 6, io.Discard); err == nil || errors.Is(err, ErrNoBundle) || lags.Load() != 0 {
		t.Errorf("a server that lags behind: %v, %d refusals left", err, lags.Load())
	}
	var got bytes.Buffer
	if err := h.Fetch(t.Context(), "b", 6, &got); err != nil || got.String() != "bundle" {
		t.Errorf("afterwards %q came, %v", &got, err)
	}

	deletes := refuses(t, s, "STREAM.DELETE."+n.resultStream, 2, away)
	if err := h.Remove(t.Context()); err != nil || deletes.Load() != 0 {
		t.Errorf("a stream that cannot be removed at once: %v, %d refusals left", err, deletes.Load())
	}
	for name := range h.js.StreamNames(t.Context()).Name() {
		t.Errorf("%s is left", name)
	}
}

// The hub creates lost streams again, and calls OnLoss.
func TestLostStreamsAreMadeAgain(t *testing.T) {
	h, l, listen := pair(t)
	fresh, told := make(chan bool, 1), make(chan Message, 1)
	listen(Handlers{OnMessage: func(m Message) { told <- m; m.Done() }, OnLoss: func() { fresh <- true },
		OnQuestion: func(Question) any { return nil }})
	if err := h.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := make(chan error, 1)
	go func() { took <- l.Next(t.Context(), &work{}) }()
	<-fresh
	if _, err := h.Publish(t.Context(), "a", work{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	if err := l.Send(t.Context(), "k", work{7}); err != nil {
		t.Fatal(err)
	}
	<-told
}
