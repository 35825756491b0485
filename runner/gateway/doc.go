// Package gateway is the agent-facing side of a run: a JSON-RPC 2.0 server to
// which an agent registers its tools and proposes calls, and which checks,
// dispatches, audits and records them.
//
// A client speaks over a unix socket, one message a line, or over a WebSocket,
// one message a text frame. Each action of a proposal goes: known tool, schema,
// capability, policy, rate and concurrency, dispatch. Dispatch calls the client
// back with tools.execute on the same connection, so the gateway never runs a
// tool itself.
//
// PROTOCOL.md beside this file lists the methods for those who write a client.
//
// Vocabulary: a call is one action that was submitted; it ends in exactly one
// way and leaves exactly one line in the audit layer. A recording is what
// runs.start opens: while it is open, each call is also one turn. A scope is a
// policy in force together with the state that rules may require: the run's,
// or in serve a connection's until it starts a run.
//
// Promises: an answer is sent only after what it tells is written (it survives
// our own death by SIGKILL); turns are numbered by the recorder alone; memory
// is bounded whatever a client sends, does not read, or never answers.
//
// Everything that comes from a client is taken for hostile. In a run the
// gateway serves one recording, the run's own ([Config.Run]); in serve it opens
// one for each runs.start ([Config.Open]).
package gateway
