// Package rpc is a JSON-RPC 2.0 server for clients that may be hostile: over a
// unix socket, one message a line, or over a WebSocket, one message a text
// frame. It owns the transport, the framing, the limits and the order of
// requests. A [Session] knows what the methods mean.
//
// A client's messages are handled in the order they were sent. The goroutine that
// reads a message also serves it. When a request has to wait, in [Request.Call] or
// [Request.Wait], another goroutine reads on. So a request is straight-line code from
// its beginning to its answer, the answers to our own requests are always read, and a
// request that need not wait costs no goroutine.
//
// [Request.Go] starts requests that may wait. It bounds how many run at once and how
// many bytes they hold. The rest wait in a queue, without a goroutine. Memory is bounded whatever a
// client sends, does not read, or never
// answers.
package rpc
