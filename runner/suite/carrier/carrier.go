//go:build linux

// Package carrier carries the tries of a suite to workers, and what they tell to the coordinator, over NATS. It decides
// nothing: when all that it holds is lost, the coordinator publishes again what its ledger has open.
//
// A [Hub] is the coordinator's end. It alone makes the streams. A [Line] is a worker's end, which needs no right but to
// take work, to publish and to store bundles.
package carrier

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startTime bounds how long the server of this process may take to start.
const startTime = 30 * time.Second

// maxMessage bounds a message in bytes: a result with the end of what a run said.
const maxMessage = 8 << 20

// Server is a NATS server in this process, which listens nowhere and keeps everything in memory but bundles.
type Server struct {
	server *server.Server
	dir    string
}

// Serve starts a server whose scratch directory is dir. What another one left there is removed: nobody may use dir at
// the same time.
func Serve(dir string) (*Server, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir:   dir,
		MaxPayload: maxMessage, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 40})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ns.Start()
	s := &Server{ns, dir}
	if !ns.ReadyForConnections(startTime) {
		return nil, errors.Join(errors.New("the NATS server in this process did not start"), s.Close())
	}
	return s, nil
}

// Connect connects to the server within this process.
func (s *Server) Connect(name string) (*nats.Conn, error) {
	return nats.Connect("", nats.InProcessServer(s.server), nats.Name(name), nats.MaxReconnects(-1))
}

// Close ends the server and removes what it kept.
func (s *Server) Close() error {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	return os.RemoveAll(s.dir)
}

// names are those of a suite on a server.
type names struct{ work, told, beat, workStream, toldStream, bundles string }

// namesOf are the names for a suite: key tells it from others on the same server.
func namesOf(key string) names {
	sum := sha256.Sum256([]byte(key))
	id := hex.EncodeToString(sum[:8])
	return names{work: "assay." + id + ".work", told: "assay." + id + ".told", beat: "assay." + id + ".beat",
		workStream: "ASSAY_WORK_" + id, toldStream: "ASSAY_RESULT_" + id, bundles: "assay-bundles-" + id}
}

// Options say how a hub keeps messages.
type Options struct {
	// Replicas is how many servers keep each message; zero means one.
	Replicas int
	// OnFile keeps messages on the servers' disks instead of in their memory.
	OnFile bool
}

// Hub is the coordinator's end.
type Hub struct {
	names
	js     jetstream.JetStream
	stream jetstream.Stream // of work
	taken  jetstream.Consumer
	store  jetstream.ObjectStore
}

// NewHub makes the streams of the suite key, or finds them. Work that nobody has taken is thrown away: the ledger
// knows of it.
func NewHub(ctx context.Context, nc *nats.Conn, key string, opt Options) (*Hub, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	h := &Hub{names: namesOf(key), js: js}
	kept := jetstream.MemoryStorage
	if opt.OnFile {
		kept = jetstream.FileStorage
	}
	queue := jetstream.StreamConfig{Name: h.workStream, Subjects: []string{h.work},
		Retention: jetstream.WorkQueuePolicy,
		Storage:   kept, Replicas: max(1, opt.Replicas), MaxMsgSize: maxMessage}
	if h.stream, err = js.CreateOrUpdateStream(ctx, queue); err != nil {
		return nil, fmt.Errorf("make the stream of work: %w", err)
	}
	if err := h.stream.Purge(ctx); err != nil {
		return nil, fmt.Errorf("empty the stream of work: %w", err)
	}
	_, err = h.stream.CreateOrUpdateConsumer(ctx,
		jetstream.ConsumerConfig{Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy,
			MaxAckPending: -1})
	if err != nil {
		return nil, err
	}
	queue.Name, queue.Subjects = h.toldStream, []string{h.told}
	told, err := js.CreateOrUpdateStream(ctx, queue)
	if err != nil {
		return nil, fmt.Errorf("make the stream of results: %w", err)
	}
	h.taken, err = told.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "coordinator",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Minute, MaxAckPending: -1})
	if err != nil {
		return nil, err
	}
	h.store, err = js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: h.bundles,
		Storage: jetstream.FileStorage, Replicas: max(1, opt.Replicas)})
	if err != nil {
		return nil, fmt.Errorf("make the store of bundles: %w", err)
	}
	return h, nil
}

// Publish publishes work and returns its number.
func (h *Hub) Publish(ctx context.Context, work any) (uint64, error) {
	data, err := json.Marshal(work)
	if err != nil {
		return 0, err
	}
	ack, err := h.js.Publish(ctx, h.work, data)
	if err != nil {
		return 0, fmt.Errorf("publish a try: %w", err)
	}
	return ack.Sequence, nil
}

// Taken reports whether the work with the number has been taken by a worker, or is lost.
func (h *Hub) Taken(ctx context.Context, number uint64) (bool, error) {
	_, err := h.stream.GetMsg(ctx, number)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// Message is what a worker told. Done says that it need not be told again.
type Message struct {
	Data []byte
	Done func()
}

// Listen calls told for each message of a worker, and beat for each token that is said to live, until stop is called.
// The functions are called from goroutines of their own, told for one message after the other.
func (h *Hub) Listen(nc *nats.Conn, told func(Message), beat func(token string)) (stop func(), err error) {
	beats, err := nc.Subscribe(h.beat, func(m *nats.Msg) { beat(string(m.Data)) })
	if err != nil {
		return nil, err
	}
	messages, err := h.taken.Consume(func(m jetstream.Msg) { told(Message{m.Data(), func() { _ = m.Ack() }}) })
	if err != nil {
		return nil, errors.Join(err, beats.Unsubscribe())
	}
	return func() {
		messages.Stop()
		<-messages.Closed()
		_ = beats.Unsubscribe()
	}, nil
}

// Fetch writes the bundle with the name to w.
func (h *Hub) Fetch(ctx context.Context, name string, w io.Writer) error {
	o, err := h.store.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("fetch the bundle %s: %w", name, err)
	}
	_, err = io.Copy(w, o)
	return errors.Join(err, o.Close())
}

// Forget removes the bundle with the name.
func (h *Hub) Forget(ctx context.Context, name string) error { return h.store.Delete(ctx, name) }

// Line is a worker's end.
type Line struct {
	names
	nc    *nats.Conn
	js    jetstream.JetStream
	queue jetstream.Consumer
}

// NewLine joins the suite key, whose coordinator has made the streams.
func NewLine(ctx context.Context, nc *nats.Conn, key string) (*Line, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	l := &Line{names: namesOf(key), nc: nc, js: js}
	if l.queue, err = js.Consumer(ctx, l.workStream, "workers"); err != nil {
		return nil, fmt.Errorf("join the suite: %w", err)
	}
	return l, nil
}

// Next waits for work and takes it: no other worker gets it any more.
func (l *Line) Next(ctx context.Context, into any) error {
	// The library refuses a context whose deadline is over, and that one need not say so yet.
	fetch, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	for {
		m, err := l.queue.Next(jetstream.FetchContext(fetch))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
			continue
		case err != nil:
			return err
		}
		if err := m.DoubleAck(ctx); err != nil {
			continue // somebody else has it, or nobody: the coordinator sees to that
		}
		return json.Unmarshal(m.Data(), into)
	}
}

// Tell tells the coordinator something, and returns when that is kept.
func (l *Line) Tell(ctx context.Context, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = l.js.Publish(ctx, l.told, data, jetstream.WithRetryAttempts(10))
	return err
}

// Beat says that a try lives.
func (l *Line) Beat(token string) error { return l.nc.Publish(l.beat, []byte(token)) }

// Store stores a bundle under the name.
func (l *Line) Store(ctx context.Context, name string, r io.Reader) error {
	store, err := l.js.ObjectStore(ctx, l.bundles)
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, jetstream.ObjectMeta{Name: name}, r)
	return err
}
