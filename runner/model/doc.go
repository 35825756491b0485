// Package model is the endpoint between an agent and the providers of its models.
//
// An [Endpoint] listens on a loopback address. The agent gets the address and a token of the run in its environment
// ([Endpoint.Environ]); only the recorder has the provider's key. A request to a model goes to the provider with the
// key in place of the token, and is otherwise unchanged. The answer comes back unchanged, byte by byte, with its
// flushes and errors: nothing is translated, retried, cached or timed out. An answer that contains the key ends
// before it.
//
// A [Recorder] gets a copy of what passed, after it has passed. It decodes the copy (package wire), removes secrets,
// and writes a line of layers/model.ndjson for each request, refused ones included. Long texts in bodies are stored
// as members of the bundle, each once, since an agent sends its whole conversation with each request.
//
// The agent may be hostile. It can only ask for the paths that classify accepts, and the provider gets the path as
// this package spells it, never as the agent did.
package model
