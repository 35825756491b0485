// Package mcp is a policy gateway between an MCP client and a server.
//
// A [Proxy] relays between one client and one [Server], a message a line. A
// server is a program ([Command]) or a remote one that speaks Streamable HTTP
// ([Remote]); a client speaks over stdin and stdout, or over Streamable HTTP to a
// [Front], which gives each session a server and a proxy of its own.
//
// Every message passes through byte for byte, with these exceptions. A request
// that the policy denies never reaches the other side and is answered with a
// JSON-RPC error. What may not be used is left out of the answers to tools/list,
// resources/list and prompts/list. A message that two parsers could read in two
// ways (repeated keys, keys in the wrong case, invalid JSON) is refused, so that
// nothing gets past the check by being ambiguous: whoever waits for it gets an
// error with its id. A tool that is not what it was when it was first listed is
// denied.
//
// A login goes to the server that asks for it, and its challenge comes to the client as
// it is. The resource that it names (RFC 9728) is the server's own URL and not the
// front's: a token is issued for a resource (RFC 8707), and the server must refuse one
// that was issued for another. So the client has to accept the server's URL.
//
// A client of a [Front] in front of a program pays for HTTP, a process of its own and its
// pipes. With 50 clients at once that alone costs 1.5 times the CPU time of the direct
// exchange over HTTP, as a relay shows that looks at nothing; with the proxy it is 1.7
// times ("make bench", mcp-relay).
//
// Each decision is a line of a decision log, a CloudEvent of type
// assay.tool.decision, written before the call goes on. Inside a run the proxy
// also proposes each call to the run's gateway. The run's policy then applies
// too, and the run records the call as its own.
package mcp
