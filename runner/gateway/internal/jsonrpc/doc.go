// Package jsonrpc reads and writes JSON-RPC 2.0 messages that may be hostile. The run's gateway and the MCP
// proxy use it, so both refuse the same messages.
//
// [CheckText] bounds the nesting and the numbers of a text before anything decodes it. [Decode] refuses a message
// that two parsers could read in two ways: repeated keys, keys in the wrong case, invalid JSON. [IDOf] finds the id
// of a message that was refused, so that whoever waits for its answer gets an error. [IDKey] is equal for all
// spellings of one id.
package jsonrpc
