//go:build linux

package carrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askTime limits how long a question waits for its answer.
const askTime = 5 * time.Second

// Client is a worker's end. Its methods are safe for concurrent use after Join.
type Client struct {
	names  // of the suite that it joined; empty before Join
	nc     *nats.Conn
	js     jetstream.JetStream
	worker string
	// onError is called with errors after which the client tries again.
	onError func(error)
}

// NewClient returns the end of the worker with the given name. It calls onError, unless that is nil, with errors after
// which it tries again.
func NewClient(nc *nats.Conn, worker string, onError func(error)) (*Client, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Client{nc: nc, js: js, worker: worker, onError: func(err error) {
		// The end of a suite removes its queue, and Access.OnLost reports a lost connection: neither is an error here.
		if onError != nil && !errors.Is(err, jetstream.ErrConsumerDeleted) && nc.IsConnected() {
			onError(err)
		}
	}}, nil
}

var errNoAnswer = errors.New("no coordinator answers")

// Ask sends a question to all coordinators, and decodes the first answer. Both are JSON. It is an error if none answers
// within askTime.
func (c *Client) Ask(ctx context.Context, question, answer any) error {
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	m, err := c.nc.RequestWithContext(ctx, hello(c.worker), data)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return json.Unmarshal(m.Data, answer)
}

// Join makes the client work for the suite with the given id. Next, Send, Store and Workspace need it.
func (c *Client) Join(id string) { c.names = namesOf(id) }

// Next waits for work and takes it, so that no other worker gets it. It also waits while NATS does not answer. The
// error wraps the cause of ctx's end, or says that the work is not valid JSON.
func (c *Client) Next(ctx context.Context, into any) error {
	var data []byte
	err := retry(ctx, c.onError, func(ctx context.Context) error {
		queue, err := c.js.Consumer(ctx, c.workStream, workers)
		for err == nil && data == nil {
			data, err = c.take(ctx, queue)
		}
		return err
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// take waits some seconds for one message; it returns nil if none comes.
func (c *Client) take(ctx context.Context, queue jetstream.Consumer) ([]byte, error) {
	// The library rejects a context whose deadline has passed, although its Err may still be nil. This one has none.
	fetch, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	m, err := queue.Next(jetstream.FetchContext(fetch))
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = m.Nak() // give it back for another worker
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := m.DoubleAck(ctx); err != nil {
		return nil, err // perhaps no worker has it now: then the coordinator gives it out again
	}
	return m.Data(), nil
}

// Send sends a message to the coordinator, and returns when NATS has stored it. It tries again until ctx ends. Messages
// with the same key are stored once.
func (c *Client) Send(ctx context.Context, key string, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return retry(ctx, c.onError, func(ctx context.Context) error {
		_, err := c.js.Publish(ctx, c.results+"."+c.worker, data, jetstream.WithMsgID(key))
		return err
	})
}

// Store stores a bundle under a name, part by part. It tries again until ctx ends.
func (c *Client) Store(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	for part := range parts(size) {
		err := retry(ctx, c.onError, func(ctx context.Context) error {
			store, err := c.js.ObjectStore(ctx, c.bundles)
			if err != nil {
				return err
			}
			at := int64(part) * partBytes
			_, err = store.Put(ctx, jetstream.ObjectMeta{Name: partName(name, part)},
				io.NewSectionReader(r, at, min(partBytes, size-at)))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrNoWorkspace is wrapped by the errors of Workspace when NATS lacks the workspace, or a part of it.
var ErrNoWorkspace = errors.New("NATS does not have the workspace")

// Workspace writes the workspace with the given name to w, and returns an error of w as it is.
func (c *Client) Workspace(ctx context.Context, name string, w io.Writer) error {
	subject := c.workspaces + "." + name
	stream, err := c.js.Stream(ctx, c.workspaceStream)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWorkspace, err)
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWorkspace, err)
	}
	all, err := strconv.Atoi(string(m.Data))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoWorkspace, err)
	}
	for n := range all {
		asking, stop := context.WithTimeout(ctx, askTime)
		err := retry(asking, nil, func(ctx context.Context) error { // the server that answers may lag behind the others
			m, err = stream.GetLastMsgForSubject(ctx, fmt.Sprintf("%s.%d", subject, n))
			return err
		})
		stop()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoWorkspace, err)
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
	}
	return nil
}

// workspacePart is how many bytes of a workspace fit into one message. Servers allow a mebibyte by default.
const workspacePart = 512 << 10

// partBytes is how many bytes of a bundle fit into one object. Each part is confirmed before the next one is sent:
// until then it takes memory of the client or the server.
const partBytes = 8 << 20

// parts is how many parts a bundle of that size has: at least one.
func parts(size int64) int { return max(1, int((size+partBytes-1)/partBytes)) }

func partName(name string, part int) string { return fmt.Sprintf("%s/%d", name, part) }
