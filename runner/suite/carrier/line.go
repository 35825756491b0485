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

// askTime bounds how long an answer of a coordinator is waited for.
const askTime = 5 * time.Second

// Line is a worker's end.
type Line struct {
	names  // of the suite joined; empty before Join
	nc     *nats.Conn
	js     jetstream.JetStream
	worker string
	lost   func(error)
}

// NewLine makes the end of the worker with the name. lost is told of errors after which something is tried again; it
// may be nil.
func NewLine(nc *nats.Conn, worker string, lost func(error)) (*Line, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return &Line{nc: nc, js: js, worker: worker, lost: func(err error) {
		// A suite that is over removes its queue, and a server that ends says no more.
		if lost != nil && !errors.Is(err, jetstream.ErrConsumerDeleted) && nc.IsConnected() {
			lost(err)
		}
	}}, nil
}

// ErrNobody is returned by Ask when no coordinator answers.
var ErrNobody = errors.New("no coordinator answers")

// Ask asks coordinators, and gives what the first one answers.
func (l *Line) Ask(ctx context.Context, question, answer any) error {
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	m, err := l.nc.RequestWithContext(ctx, hello(l.worker), data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNobody, err)
	}
	return json.Unmarshal(m.Data, answer)
}

// Join makes the line that of the suite with the id.
func (l *Line) Join(id string) { l.names = namesOf(id) }

// Next waits for work and takes it: no other worker gets it any more. While NATS is away it waits. The error is that of
// ctx, or about work that cannot be read.
func (l *Line) Next(ctx context.Context, into any) error {
	var data []byte
	err := insist(ctx, l.lost, func(ctx context.Context) error {
		queue, err := l.js.Consumer(ctx, l.workStream, workers)
		for err == nil && data == nil {
			data, err = l.take(ctx, queue)
		}
		return err
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// take waits for one message for some seconds; nil if there is none.
func (l *Line) take(ctx context.Context, queue jetstream.Consumer) ([]byte, error) {
	// The library refuses a context whose deadline is over, and that one need not say so yet.
	fetch, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	m, err := queue.Next(jetstream.FetchContext(fetch))
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = m.Nak() // somebody else shall have it
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, jetstream.ErrNoMessages):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := m.DoubleAck(ctx); err != nil {
		return nil, err // somebody else has it, or nobody: the coordinator sees to that
	}
	return m.Data(), nil
}

// Tell tells the coordinator something, and returns when that is kept. It tries again until ctx ends. What has the same
// key is kept once.
func (l *Line) Tell(ctx context.Context, key string, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return insist(ctx, l.lost, func(ctx context.Context) error {
		_, err := l.js.Publish(ctx, l.told+"."+l.worker, data, jetstream.WithMsgID(key))
		return err
	})
}

// Store stores a bundle under the name, part by part. It tries again until ctx ends.
func (l *Line) Store(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	for part := range parts(size) {
		err := insist(ctx, l.lost, func(ctx context.Context) error {
			store, err := l.js.ObjectStore(ctx, l.bundles)
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

// ErrNoWorkspace is wrapped by the errors about a workspace that is not, or not all, there.
var ErrNoWorkspace = errors.New("it is not there")

// Workspace writes the workspace with the name to w. Errors of w are returned as they are.
func (l *Line) Workspace(ctx context.Context, name string, w io.Writer) error {
	subject := l.workspaces + "." + name
	stream, err := l.js.Stream(ctx, l.workspaceStream)
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
		err := insist(asking, nil, func(ctx context.Context) error { // the server that is asked may lag behind
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

// workspacePart is how much of a workspace is one message: servers take a mebibyte unless they are told otherwise.
const workspacePart = 512 << 10

// partBytes is how much of a bundle is one object. The servers confirm each part before the next one is sent: what is
// not confirmed is in somebody's memory.
const partBytes = 8 << 20

// parts is how many parts a bundle has.
func parts(size int64) int { return max(1, int((size+partBytes-1)/partBytes)) }

func partName(name string, part int) string { return fmt.Sprintf("%s/%d", name, part) }
