// Package mcp is a policy gateway between an MCP client and a stdio server.
//
// Every line goes through byte for byte, but for three things: a tools/call
// that the policy denies never reaches the server and is answered with a
// JSON-RPC error; tools that may not be called at all are left out of the
// answer to tools/list; and a client's message that two parsers could read in
// two ways (duplicate keys, keys in the wrong case, invalid JSON) is refused,
// so that nothing gets past the check by being ambiguous.
//
// Each decision is a line of a decision log, a CloudEvent of type
// assay.tool.decision, written before the call goes on. Inside a run the proxy
// also proposes each call to the run's gateway, whose policy then applies too
// and which records the call as its own.
package mcp
