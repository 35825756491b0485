// Package rpc is a JSON-RPC 2.0 server for clients that may be hostile, over a unix socket with one message per line,
// or over a WebSocket with one message per text frame. It handles the transport, the framing, the limits and the
// order of requests. A [Session] implements the methods.
//
// A client's messages are handled in the order in which they were sent. The goroutine that reads a message also
// serves it. When a request has to wait, in [Request.Call] or [Request.Wait], another goroutine takes over the
// reading. So a request is straight-line code from start to answer, answers to the server's own requests are always
// read, and a request that does not wait costs no goroutine.
//
// [Request.Go] starts requests that may wait. It limits how many run at the same time and how many bytes they hold.
// The rest wait in a queue, without a goroutine. Memory is bounded, whatever a client sends, does not read, or never
// answers.
package rpc
