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
	// OnFile keeps messages on the servers' disks instead of in their memory, and three times where there are three
	// servers.
	OnFile bool
	// Lost is told of errors after which something is tried again; it may be nil.
	Lost func(error)
}

// Hub is the coordinator's end. Its methods are safe for concurrent use.
type Hub struct {
	names
	Options
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int

	mu     sync.Mutex // guards the next four
	stream jetstream.Stream
	toldTo jetstream.Consumer
	shared jetstream.Stream // of workspaces
	store  jetstream.ObjectStore
}

// NewHub makes the streams of the suite with the id, or finds them. Work that nobody has taken is thrown away: the
// ledger knows of it. What was told and not handled is told again.
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
	err = insist(starting, nil, func(ctx context.Context) error { // servers that have just started have no leader yet
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
	if err := insist(starting, nil, h.Recall); err != nil {
		return nil, fmt.Errorf("empty the stream of work: %w", err)
	}
	// The one before may have got messages that it did not handle. They go to a new consumer at once.
	err = insist(starting, nil, func(ctx context.Context) error {
		err := h.js.DeleteConsumer(ctx, h.toldStream, coordinator)
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

// What a server answers that cannot keep a stream three times, by nats-server's server/errors.json.
const (
	noCluster  = jetstream.ErrorCode(10074)
	fewServers = jetstream.ErrorCode(10005)
)

// gatherTime is how long three servers may take to find each other.
const gatherTime = 5 * time.Second

// Replicas is how many servers keep each message.
func (h *Hub) Replicas() int { return h.replicas }

// make makes what is not there. fresh reports whether the stream of work was not.
func (h *Hub) make(ctx context.Context) (fresh bool, err error) {
	ctx, stop := context.WithTimeout(ctx, askTime) // a server without a leader does not answer
	defer stop()
	stream, _, fresh, err := h.queue(ctx, h.workStream, h.work, workers, 0)
	if err != nil {
		return fresh, fmt.Errorf("make the stream of work: %w", err)
	}
	// A coordinator takes a long time to handle a large bundle, and its successor has a consumer of its own.
	_, toldTo, _, err := h.queue(ctx, h.toldStream, h.told+".*", coordinator, time.Hour)
	if err != nil {
		return fresh, fmt.Errorf("make the stream of results: %w", err)
	}
	shared, err := h.js.Stream(ctx, h.workspaceStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		shared, err = h.js.CreateStream(ctx, jetstream.StreamConfig{Name: h.workspaceStream,
			Subjects: []string{h.workspaces + ".>"}, MaxMsgsPerSubject: 1, AllowDirect: true,
			Storage: jetstream.FileStorage, Replicas: h.replicas})
	}
	if err != nil {
		return fresh, fmt.Errorf("make the stream of workspaces: %w", err)
	}
	store, err := h.js.ObjectStore(ctx, h.bundles)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		store, err = h.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: h.bundles,
			Storage: jetstream.FileStorage, Replicas: h.replicas})
	}
	if err != nil {
		return fresh, fmt.Errorf("make the store of bundles: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stream, h.toldTo, h.shared, h.store = stream, toldTo, shared, store
	return fresh, nil
}

// queue finds or makes a stream of which each message goes to one taker, and its only consumer.
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

// Remove removes the streams with all that is in them. It tries again until ctx ends.
func (h *Hub) Remove(ctx context.Context) error {
	var all error
	for _, stream := range []string{h.workStream, h.toldStream, h.workspaceStream, "OBJ_" + h.bundles} {
		all = errors.Join(all, insist(ctx, nil, func(ctx context.Context) error {
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

// Up reports whether a server is connected.
func (h *Hub) Up() bool { return h.nc.IsConnected() }

// shortTime bounds what the coordinator waits for while it does nothing else.
const shortTime = time.Second

// Publish publishes work under a key, and returns its number. What has the same key is kept once.
func (h *Hub) Publish(ctx context.Context, key string, work any) (uint64, error) {
	data, err := json.Marshal(work)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, shortTime)
	defer stop()
	ack, err := h.js.Publish(ctx, h.work, data, jetstream.WithMsgID(key), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, fmt.Errorf("publish a try: %w", err)
	}
	return ack.Sequence, nil
}

// Recall throws away work that nobody has taken.
func (h *Hub) Recall(ctx context.Context) error {
	h.mu.Lock()
	stream := h.stream
	h.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	return stream.Purge(ctx)
}

// Taken reports whether the work with the number has been taken by a worker, or is lost.
func (h *Hub) Taken(ctx context.Context, number uint64) (bool, error) {
	h.mu.Lock()
	stream := h.stream
	h.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, shortTime)
	defer stop()
	_, err := stream.GetMsg(ctx, number)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// Message is what a worker told. Done says that it need not be told again.
type Message struct {
	From string // the worker's name
	Data []byte
	Done func()
}

// Question is what a worker asks.
type Question struct {
	From string // the worker's name
	Data []byte
}

// Listening is where a hub brings what it hears. Its functions are called from goroutines of the hub.
type Listening struct {
	// Told gets each message of a worker, one after the other.
	Told func(Message)
	// Asked gets a worker's question, and returns the answer; nil for none.
	Asked func(Question) any
	// Fresh is called when the stream of work was lost, with all that was in it, and made again.
	Fresh func()
}

// Listen listens until stop is called. What the servers lose is made again.
func (h *Hub) Listen(to Listening) (stop func(), err error) {
	questions, err := h.nc.Subscribe(hello("*"), func(m *nats.Msg) {
		answer := to.Asked(Question{last(m.Subject), m.Data})
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
	both.Go(func() { h.hear(ctx, to) })
	both.Go(func() { h.mend(ctx, to) })
	return func() {
		_ = questions.Unsubscribe()
		cancel()
		both.Wait()
	}, nil
}

func last(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// hear brings messages until ctx ends.
func (h *Hub) hear(ctx context.Context, to Listening) {
	_ = insist(ctx, h.Lost, func(ctx context.Context) error {
		h.mu.Lock()
		told := h.toldTo
		h.mu.Unlock()
		for {
			fetch, stop := context.WithCancel(ctx)
			m, err := told.Next(jetstream.FetchContext(fetch))
			stop()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
				continue
			case err != nil:
				return err
			}
			to.Told(Message{last(m.Subject()), m.Data(), func() { _ = m.Ack() }})
		}
	})
}

// mendTime is how often is looked whether the streams are there.
const mendTime = 2 * time.Second

// mend makes again what is lost, until ctx ends.
func (h *Hub) mend(ctx context.Context, to Listening) {
	tick := time.NewTicker(mendTime)
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
		if err != nil && ctx.Err() == nil && h.Lost != nil {
			h.Lost(err)
		}
		if fresh && err == nil {
			to.Fresh()
		}
	}
}

// ErrNoBundle is wrapped by the error about a bundle that is not in the store.
var ErrNoBundle = errors.New("it is not in the store")

// Fetch writes the bundle with the name and of the size to w.
func (h *Hub) Fetch(ctx context.Context, name string, size int64, w io.Writer) error {
	h.mu.Lock()
	store := h.store
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

// missing is why an object was not found. Any server of three may have been asked, also one that lags behind; what the
// stream's leader does not know of is lost.
func (h *Hub) missing(ctx context.Context, object string) error {
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	subject := "$O." + h.bundles + ".M." + base64.URLEncoding.EncodeToString([]byte(object))
	question, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return err
	}
	m, err := h.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.OBJ_"+h.bundles, question)
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
		return errors.New("a server does not have it yet")
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound,
		answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return ErrNoBundle
	}
	return answer.Error
}

// SendWorkspace makes what is read from a reader the workspace with the name, if there is none yet. It tries each part
// again until ctx ends. An error of the reader leaves no workspace.
func (h *Hub) SendWorkspace(ctx context.Context, name string, r io.Reader) error {
	h.mu.Lock()
	shared := h.shared
	h.mu.Unlock()
	subject := h.workspaces + "." + name
	if _, err := shared.GetLastMsgForSubject(ctx, subject); err == nil {
		return nil
	}
	send := func(subject string, data []byte) error {
		return insist(ctx, h.Lost, func(ctx context.Context) error {
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
		if err != nil { // it was the last one: now all are there
			return send(subject, []byte(strconv.Itoa(n+min(size, 1))))
		}
	}
}

// Forget removes the bundle with the name and of the size.
func (h *Hub) Forget(ctx context.Context, name string, size int64) error {
	h.mu.Lock()
	store := h.store
	h.mu.Unlock()
	var all error
	for part := range parts(size) {
		all = errors.Join(all, store.Delete(ctx, partName(name, part)))
	}
	return all
}
