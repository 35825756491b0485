// Package mcp is a policy gateway between an MCP client and a server.
//
// A [Proxy] relays between one client and one [Server], a message a line. A
// server is a program ([Command]) or a remote one that speaks Streamable HTTP
// ([Remote]); a client speaks over stdin and stdout, or over Streamable HTTP to a
// [Front], which gives each session a server and a proxy of its own.
//
// Every message passes through byte for byte, with these exceptions. A request
// that the policy denies never reaches the other side and is answered with a
// JSON-RPC error. The answers to tools/list, resources/list and prompts/list lack
// what the policy forbids. A message that two parsers could read in two ways
// (repeated keys, keys in the wrong case, invalid JSON) is refused, so that no
// ambiguous message gets past the check. Whoever waits for its answer gets an error
// with its id. A tool that has changed since it was first listed is denied.
//
// A client logs in to the server itself: the proxy passes the server's challenge on
// unchanged. The challenge names a resource (RFC 9728), which is the server's own URL and
// not the front's. A token is issued for one resource (RFC 8707), and the server must
// refuse a token for another. So the client has to accept the server's URL.
//
// A program behind a [Front] costs each client HTTP, a process of its own and its pipes.
// With 50 clients at once, that alone takes 1.5 times the CPU time of the direct exchange
// over HTTP, measured with a relay that checks nothing. With the proxy it is 1.7 times
// ("make bench", mcp-relay).
//
// Each decision is a line of a decision log, a CloudEvent of type
// assay.tool.decision. The proxy writes it before it passes the call on. Inside a
// run the proxy also proposes each call to the run's gateway. The run's policy then
// applies too, and the run records the call as its own.
package mcp
