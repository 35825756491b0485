// Package rpc is a JSON-RPC 2.0 server for clients that may be hostile: over a
// unix socket, one message a line, or over a WebSocket, one message a text
// frame. It owns the transport, the framing, the limits and the order of
// requests. What the methods mean is the business of a [Session].
//
// A client's messages are handled in the order they were sent. The goroutine
// that reads a message also serves it; when a request has to wait, by
// [Request.Call] or [Request.Wait], another goroutine reads on. So a request is
// plain code from its beginning to its answer, the answers to our own requests
// are always read, and a request that need not wait costs no goroutine.
//
// Requests that may wait are started with [Request.Go], which bounds how many
// run at once and how many bytes they hold; the rest wait in a queue, without a
// goroutine. Memory is bounded whatever a client sends, does not read, or never
// answers.
package rpc
