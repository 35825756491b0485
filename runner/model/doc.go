// Package model is the endpoint between an agent and the providers of its models.
//
// An [Endpoint] listens on a loopback address. The agent gets its address and a token of the run in its environment
// ([Endpoint.Environ]); the provider's key stays with the recorder. A request that asks a model goes on to the
// provider with the key in the token's place, and all else as it is. The answer comes back as it is, byte by byte, with
// its flushes and its errors: nothing is translated, retried, cached or timed out. An answer that holds the key ends
// before it.
//
// A [Recorder] gets a copy of what passed, after it has passed. It decodes the copy (package wire), takes the secrets
// out, and writes a line of layers/model.ndjson for each request, those that were refused included. The texts of bodies
// are members of their own, each of them once: an agent sends its whole conversation with each request.
//
// The agent may be hostile. What it can ask for is a list of paths (see classify): the provider is asked for the path
// as this package spells it, never as the agent did.
package model
