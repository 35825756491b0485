package mcp

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"sync"
	"time"
)

// How long the proxy waits before it resumes a stream that broke off, and how often it
// tries again without having received anything.
const (
	resumeFirst = 500 * time.Millisecond
	resumeLeast = 100 * time.Millisecond // whatever the server asks for
	resumeMost  = 20 * time.Second
	resumeTries = 8
)

// standTimeout is how long the client's next message waits for the stream of the server's
// own messages. Some servers open that stream only with their first message.
const standTimeout = 2 * time.Second

// wait is how long to wait before the stream is resumed.
func (e event) wait(now time.Duration) time.Duration {
	if e.retry == 0 {
		return now
	}
	return min(max(e.retry, resumeLeast), resumeMost)
}

// errAnswered ends the reading of a stream.
var errAnswered = errors.New("answered")

// stream passes on the messages of a stream until m is answered. A stream that breaks
// off is resumed after the last event that came.
func (c *remote) stream(resp *http.Response, m *asked) {
	last, wait, tries := "", resumeFirst, 0
	for {
		err := eachEvent(resp.Body, func(e event) error {
			if e.id != "" || e.data != nil {
				tries = 0
			}
			if e.id != "" {
				last = e.id
			}
			wait = e.wait(wait)
			if e.data != nil && c.pass(e.data, m) {
				return errAnswered
			}
			return nil
		})
		resp.Body.Close()
		if errors.Is(err, errAnswered) || c.ctx.Err() != nil {
			return
		}
		for resp = nil; resp == nil; tries++ {
			if last == "" || tries >= resumeTries {
				c.fail(m, "the stream of its answer broke off", nil)
				return
			}
			if resp, err = c.resume(c.ctx, last, wait); err != nil {
				c.fail(m, "the stream of its answer broke off: "+plain(err).Error(), nil)
				return
			}
			wait = min(wait*3/2, resumeMost)
		}
	}
}

// resume asks for a stream, from an event on. It returns nil without an error if the
// server cannot be reached right now.
func (c *remote) resume(ctx context.Context, last string, wait time.Duration) (*http.Response, error) {
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	req, err := c.newRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set(headerLastSeen, last)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, ctx.Err() // unreachable for a moment
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return resp, nil
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return nil, nil
	}
	return nil, errors.New("it answered " + resp.Status)
}

// listen passes on the server's own messages, as long as the server offers a stream for
// them. It returns once the stream is open, or if the server takes too long to open it. A
// message that the server sends before that may be lost.
func (c *remote) listen() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	old := c.standing
	c.standing = cancel
	c.mu.Unlock()
	if old != nil {
		old()
	}
	stands := make(chan struct{})
	opened := sync.OnceFunc(func() { close(stands) })
	go func() {
		defer cancel()
		defer opened()
		last, wait := "", time.Duration(0)
		for ctx.Err() == nil {
			resp, err := c.resume(ctx, last, wait)
			opened()
			if err != nil {
				return // the server offers no such stream
			}
			if wait = min(max(wait*3/2, resumeFirst), resumeMost); resp == nil {
				continue
			}
			_ = eachEvent(resp.Body, func(e event) error {
				if e.id != "" {
					last = e.id
				}
				wait = e.wait(resumeFirst)
				if e.data != nil {
					c.pass(e.data, nil)
				}
				return nil
			})
			resp.Body.Close()
		}
	}()
	select {
	case <-stands:
	case <-time.After(standTimeout):
	}
}
