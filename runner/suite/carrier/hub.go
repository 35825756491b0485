//go:build linux

package carrier

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Options say how a hub keeps messages.
type Options struct {
	// OnFile keeps messages on the servers' disks instead of in memory, and on three servers if there are as many.
	OnFile bool
	// OnError is called with errors after which the hub tries again. It may be nil.
	OnError func(error)
}

// Hub is the coordinator's end. Its methods are safe for concurrent use.
type Hub struct {
	Options
	names    names
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int

	mu         sync.Mutex // guards the next four
	work       jetstream.Stream
	results    jetstream.Consumer
	workspaces jetstream.Stream
	bundles    jetstream.ObjectStore
}

// NewHub creates the streams of the suite with the given id, or finds those that an earlier coordinator left. It drops
// work that no worker has taken, since the ledger still has it. Results that were not handled are delivered again.
func NewHub(ctx context.Context, nc *nats.Conn, id string, opt Options) (*Hub, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	h := &Hub{names: namesOf(id), Options: opt, nc: nc, js: js, replicas: 1}
	if opt.OnFile {
		h.replicas = 3
	}
	starting, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	began := time.Now()
	err = retry(starting, nil, func(ctx context.Context) error { // servers that have just started may have no leader
		_, err := h.make(ctx)
		var refused *jetstream.APIError
		if errors.As(err, &refused) && (refused.ErrorCode == noCluster ||
			refused.ErrorCode == fewServers && time.Since(began) > gatherTime) {
			h.replicas = 1
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := retry(starting, nil, h.Recall); err != nil {
		return nil, fmt.Errorf("empty the stream of work: %w", err)
	}
	// Messages that an earlier coordinator received but did not handle are delivered to a new consumer at once.
	err = retry(starting, nil, func(ctx context.Context) error {
		err := h.js.DeleteConsumer(ctx, h.names.resultStream, coordinator)
		if err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) {
			_, err = h.make(ctx)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take over the results: %w", err)
	}
	return h, nil
}

// Error codes of servers that cannot keep a stream three times, from server/errors.json of nats-server.
const (
	noCluster  = jetstream.ErrorCode(10074)
	fewServers = jetstream.ErrorCode(10005)
)

// gatherTime limits how long three servers may take to find each other.
const gatherTime = 5 * time.Second

// Replicas is how many servers keep each message.
func (h *Hub) Replicas() int { return h.replicas }

// make creates the streams and the store that do not exist. fresh reports whether it created the stream of work.
func (h *Hub) make(ctx context.Context) (fresh bool, err error) {
	ctx, stop := context.WithTimeout(ctx, askTime) // a server without a leader does not answer
	defer stop()
	work, _, fresh, err := h.queue(ctx, h.names.workStream, h.names.work, workers, 0)
	if err != nil {
		return fresh, fmt.Errorf("make the stream of work: %w", err)
	}
	// The coordinator may take long to confirm a result, because it fetches and verifies the bundle first. The hour
	// delays no other coordinator: each one makes a new consumer.
	_, results, _, err := h.queue(ctx, h.names.resultStream, h.names.results+".*", coordinator, time.Hour)
	if err != nil {
		return fresh, fmt.Errorf("make the stream of results: %w", err)
	}
	workspaces, err := h.js.Stream(ctx, h.names.workspaceStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		workspaces, err = h.js.CreateStream(ctx, jetstream.StreamConfig{Name: h.names.workspaceStream,
			Subjects: []string{h.names.workspaces + ".>"}, MaxMsgsPerSubject: 1, AllowDirect: true,
			Storage: jetstream.FileStorage, Replicas: h.replicas})
	}
	if err != nil {
		return fresh, fmt.Errorf("make the stream of workspaces: %w", err)
	}
	bundles, err := h.js.ObjectStore(ctx, h.names.bundles)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bundles, err = h.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: h.names.bundles,
			Storage: jetstream.FileStorage, Replicas: h.replicas})
	}
	if err != nil {
		return fresh, fmt.Errorf("make the store of bundles: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work, h.results, h.workspaces, h.bundles = work, results, workspaces, bundles
	return fresh, nil
}

// queue finds or creates a stream that delivers each message once, and its only consumer. A message that is not
// confirmed within wait is delivered again; zero means the server's default.
func (h *Hub) queue(ctx context.Context, name, subject, consumer string, wait time.Duration) (jetstream.Stream,
	jetstream.Consumer, bool, error) {
	fresh := false
	stream, err := h.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		fresh = true
		c := jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy,
			Storage: jetstream.MemoryStorage, Replicas: h.replicas, MaxMsgSize: maxMessage}
		if h.OnFile {
			c.Storage = jetstream.FileStorage
		}
		stream, err = h.js.CreateStream(ctx, c)
	}
	if err != nil {
		return nil, nil, fresh, err
	}
	taker, err := stream.Consumer(ctx, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		taker, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: wait, MaxAckPending: -1})
	}
	return stream, taker, fresh, err
}

// Remove removes the suite's streams and its store with their contents. It tries again until ctx ends.
func (h *Hub) Remove(ctx context.Context) error {
	var all error
	n := h.names
	for _, stream := range []string{n.workStream, n.resultStream, n.workspaceStream, "OBJ_" + n.bundles} {
		all = errors.Join(all, retry(ctx, nil, func(ctx context.Context) error {
			ctx, stop := context.WithTimeout(ctx, askTime)
			defer stop()
			err := h.js.DeleteStream(ctx, stream)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		}))
	}
	return all
}

// Up reports whether the hub is connected to a server.
func (h *Hub) Up() bool { return h.nc.IsConnected() }

// shortTime limits the calls during which the coordinator can do nothing else.
const shortTime = time.Second

// Publish publishes work and returns its number in the stream. Work with the same key is stored once.
func (h *Hub) Publish(ctx context.Context, key string, work any) (uint64, error) {
	data, err := json.Marshal(work)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, shortTime)
	defer stop()
	ack, err := h.js.Publish(ctx, h.names.work, data, jetstream.WithMsgID(key), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, fmt.Errorf("publish a try: %w", err)
	}
	return ack.Sequence, nil
}

// Recall drops the work that no worker has taken.
func (h *Hub) Recall(ctx context.Context) error {
	h.mu.Lock()
	stream := h.work
	h.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	return stream.Purge(ctx)
}

// Taken reports whether the work with the given number is no longer in the stream: a worker took it, or NATS lost it.
func (h *Hub) Taken(ctx context.Context, number uint64) (bool, error) {
	h.mu.Lock()
	stream := h.work
	h.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, shortTime)
	defer stop()
	_, err := stream.GetMsg(ctx, number)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// Message is a worker's report. Until Done is called, NATS delivers it again to a later coordinator.
type Message struct {
	From string // the worker's name
	Data []byte
	Done func()
}

// Question is a question of a worker, which waits for an answer.
type Question struct {
	From string // the worker's name
	Data []byte
}

// Handlers are called for what arrives at a hub, each from one goroutine.
type Handlers struct {
	// OnMessage handles a worker's message. It need not call Done before it returns.
	OnMessage func(Message)
	// OnQuestion answers a worker's question; nil means not to answer.
	OnQuestion func(Question) any
	// OnLoss is called after NATS lost the stream of work with its contents, and the hub created it again.
	OnLoss func()
}

// Listen calls the handlers until stop is called. It creates streams again that the servers lose.
func (h *Hub) Listen(to Handlers) (stop func(), err error) {
	questions, err := h.nc.Subscribe(hello("*"), func(m *nats.Msg) {
		answer := to.OnQuestion(Question{last(m.Subject), m.Data})
		if answer == nil {
			return
		}
		if data, err := json.Marshal(answer); err == nil {
			_ = m.Respond(data)
		}
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { h.receive(ctx, to) })
	both.Go(func() { h.repair(ctx, to) })
	return func() {
		_ = questions.Unsubscribe()
		cancel()
		both.Wait()
	}, nil
}

func last(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// receive passes on messages until ctx ends.
func (h *Hub) receive(ctx context.Context, to Handlers) {
	_ = retry(ctx, h.OnError, func(ctx context.Context) error {
		h.mu.Lock()
		results := h.results
		h.mu.Unlock()
		for {
			fetch, stop := context.WithCancel(ctx)
			m, err := results.Next(jetstream.FetchContext(fetch))
			stop()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
				continue
			case err != nil:
				return err
			}
			to.OnMessage(Message{last(m.Subject()), m.Data(), func() { _ = m.Ack() }})
		}
	})
}

// repairTime is the time between two checks that the streams exist.
const repairTime = 2 * time.Second

// repair creates lost streams again, until ctx ends.
func (h *Hub) repair(ctx context.Context, to Handlers) {
	tick := time.NewTicker(repairTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !h.Up() {
			continue
		}
		fresh, err := h.make(ctx)
		if err != nil && ctx.Err() == nil && h.OnError != nil {
			h.OnError(err)
		}
		if fresh && err == nil {
			to.OnLoss()
		}
	}
}

// ErrNoBundle is wrapped by the error of Fetch when the store does not have the bundle.
var ErrNoBundle = errors.New("NATS does not have the bundle")

// Fetch writes the bundle with the given name and size to w.
func (h *Hub) Fetch(ctx context.Context, name string, size int64, w io.Writer) error {
	h.mu.Lock()
	store := h.bundles
	h.mu.Unlock()
	for part := range parts(size) {
		o, err := store.Get(ctx, partName(name, part))
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			err = h.missing(ctx, partName(name, part))
		} else if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = ErrNoBundle
		}
		if err != nil {
			return fmt.Errorf("fetch the bundle %s: %w", name, err)
		}
		_, err = io.Copy(w, io.LimitReader(o, partBytes+1))
		if err = errors.Join(err, o.Close()); err != nil {
			return fmt.Errorf("fetch the bundle %s: %w", name, err)
		}
	}
	return nil
}

// missing returns why an object was not found: ErrNoBundle if it does not exist. Any of three servers may have answered
// before, even one that lags behind; this asks the leader of the stream, which knows every object.
func (h *Hub) missing(ctx context.Context, object string) error {
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	subject := "$O." + h.names.bundles + ".M." + base64.URLEncoding.EncodeToString([]byte(object))
	question, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return err
	}
	m, err := h.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.OBJ_"+h.names.bundles, question)
	if err != nil {
		return err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	var info struct {
		Deleted bool `json:"deleted"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	switch {
	case answer.Error == nil && json.Unmarshal(answer.Message.Data, &info) == nil && info.Deleted:
		return ErrNoBundle
	case answer.Error == nil:
		return errors.New("the server that was asked does not have it yet")
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound,
		answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return ErrNoBundle
	}
	return answer.Error
}

// SendWorkspace stores the contents of r as the workspace with the given name, unless NATS has one of that name. It
// tries each part again until ctx ends. If r fails, workers do not see the workspace: the number of parts, which
// completes it, is sent last.
func (h *Hub) SendWorkspace(ctx context.Context, name string, r io.Reader) error {
	h.mu.Lock()
	workspaces := h.workspaces
	h.mu.Unlock()
	subject := h.names.workspaces + "." + name
	if _, err := workspaces.GetLastMsgForSubject(ctx, subject); err == nil {
		return nil
	}
	send := func(subject string, data []byte) error {
		return retry(ctx, h.OnError, func(ctx context.Context) error {
			_, err := h.js.Publish(ctx, subject, data)
			return err
		})
	}
	part := make([]byte, workspacePart)
	for n := 0; ; n++ {
		size, err := io.ReadFull(r, part)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if size > 0 {
			if err := send(fmt.Sprintf("%s.%d", subject, n), part[:size]); err != nil {
				return err
			}
		}
		if err != nil { // the end: this makes the workspace complete
			return send(subject, []byte(strconv.Itoa(n+min(size, 1))))
		}
	}
}

// Forget removes the bundle with the given name and size.
func (h *Hub) Forget(ctx context.Context, name string, size int64) error {
	h.mu.Lock()
	store := h.bundles
	h.mu.Unlock()
	var all error
	for part := range parts(size) {
		all = errors.Join(all, store.Delete(ctx, partName(name, part)))
	}
	return all
}
