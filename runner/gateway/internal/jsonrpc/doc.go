// Package jsonrpc reads and writes JSON-RPC 2.0 messages that may be hostile. The run's gateway and the MCP proxy
// both use it, so they refuse the same messages.
//
// [CheckText] limits the nesting and the numbers of a text before anything decodes it. [Decode] refuses a message
// that two parsers could read in two ways: repeated keys, keys in the wrong case, invalid JSON. [IDOf] finds the id
// of a refused message, so that its sender gets an error. [IDKey] is equal for all spellings of an id.
package jsonrpc
