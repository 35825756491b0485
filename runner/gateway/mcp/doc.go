// Package mcp is a policy gateway between an MCP client and a server.
//
// A [Proxy] relays between one client and one [Server], one message per line. A server is a program ([Command]) or a
// remote server that speaks Streamable HTTP ([Remote]). A client uses stdin and stdout, or Streamable HTTP to a
// [Front], which gives each session its own server and proxy.
//
// Every message passes through byte for byte, with these exceptions. A request that the policy denies does not reach
// the other side, and is answered with a JSON-RPC error. The answers to tools/list, resources/list and prompts/list
// lack what the policy forbids. A message that two parsers could read in two ways (repeated keys, keys in the wrong
// case, invalid JSON) is refused, so that no ambiguous message evades the check; if it expects an answer, it gets an
// error with its id. A tool that has changed since it was first listed is denied.
//
// A client logs in to the server itself: the proxy passes on the server's challenge unchanged. The challenge names a
// resource (RFC 9728): the server's own URL, not the front's. A token is issued for one resource (RFC 8707), and the
// server must refuse tokens for others. So the client has to accept the server's URL.
//
// Each decision is a line of a decision log, a CloudEvent of type assay.tool.decision. The proxy writes it before it
// passes the call on. Inside a run the proxy also proposes each call to the run's gateway. The run's policy then
// applies too, and the run records the call as its own.
package mcp
