// Package mcp is a policy gateway between an MCP client and a stdio server.
//
// Every line passes through byte for byte, with three exceptions. A tools/call
// that the policy denies never reaches the server and is answered with a
// JSON-RPC error. Tools that may not be called at all are left out of the answer
// to tools/list. A client's message that two parsers could read in two ways
// (repeated keys, keys in the wrong case, invalid JSON) is refused, so that
// nothing gets past the check by being ambiguous.
//
// Each decision is a line of a decision log, a CloudEvent of type
// assay.tool.decision, written before the call goes on. Inside a run the proxy
// also proposes each call to the run's gateway. The run's policy then applies
// too, and the run records the call as its own.
package mcp
