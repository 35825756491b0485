package rpc

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/gateway/internal/jsonrpc"
)

// maxBatch bounds the messages of a JSON-RPC batch.
const maxBatch = 1000

// unpack is the messages of what was read: itself, or those of a batch. What is
// no proper batch is answered here.
func (c *Conn) unpack(b []byte) []message {
	if first := bytes.TrimLeft(b, " \t\r\n"); len(first) == 0 || first[0] != '[' {
		return []message{{b, func(response []byte) {
			if response != nil {
				c.send(response)
			}
		}}}
	}
	list, failure := []jsontext.Value(nil), (*jsonrpc.Error)(nil)
	if err := jsonrpc.CheckText(b, c.server.limits.Depth); err != nil {
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)
	} else if list, _, err = jsonrpc.Split(b); err != nil {
		failure = jsonrpc.Errorf(jsonrpc.CodeParse, "%v", err)
	} else if len(list) == 0 || len(list) > maxBatch {
		failure = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "a batch must have 1 to %d messages, this one has %d", maxBatch, len(list))
	}
	if failure != nil {
		c.server.refused.Add(1)
		c.send(jsonrpc.AppendError(nil, nil, failure))
		return nil
	}
	responses := &batch{send: c.send, open: len(list)}
	messages := make([]message, len(list))
	for i, raw := range list {
		messages[i] = message{raw, responses.add}
	}
	return messages
}

// batch collects the responses of a JSON-RPC batch: they go out in one, in any
// order.
type batch struct {
	send func([]byte)
	mu   sync.Mutex
	buf  []byte
	open int
}

// add takes the response to one message; nil when there is none.
func (b *batch) add(response []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if response != nil {
		sep := byte(',')
		if len(b.buf) == 0 {
			sep = '['
		}
		b.buf = append(append(b.buf, sep), response...)
	}
	if b.open--; b.open == 0 && len(b.buf) > 0 {
		b.send(append(b.buf, ']'))
	}
}
