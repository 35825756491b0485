// Package gateway is the agent-facing side of a run: a JSON-RPC 2.0 server where an agent registers its tools and
// proposes calls, and which checks, dispatches, audits and records them. PROTOCOL.md in this directory describes the
// methods for authors of clients.
//
// The gateway never runs a tool itself: it calls the client back with tools.execute on the same connection. A tool
// call goes this way:
//
//	client          internal/rpc                gateway                        recording
//
//	proposal ---->  Conn.read: one message
//	                Conn.handle: a frame  ----> client.Serve: its method
//	                                            client.submit: the run it belongs to
//	                Request.Go: a place   ----> submission.execute: its actions
//	                                              call.execute
//	                                                call.check: tool, schema,
//	                                                  capabilities, policy, rate
//	                                                call.recordDecision  ----> Run.Decision
//	execute  <----  Request.Call  <-------------    call.dispatch
//	result   ---->  Conn.deliver  ------------->
//	                                              call.record  --------------> Run.Record: the turn
//	                                                                           Run.CallEvent
//	answer   <----  Request.Answer  <-----------  proposalResult
//
// All steps run in the goroutine that read the proposal. While it waits in Request.Call, another goroutine reads the
// next messages and delivers the result.
//
// Vocabulary: a call is one submitted action. It ends in exactly one way and leaves exactly one line in the audit
// layer. A run is opened by runs.start. While it is open, each call is also one turn.
//
// Promises: the gateway writes what an answer says before it sends the answer, so that the record survives a SIGKILL
// of the gateway. Only the recorder numbers turns. Memory is bounded, whatever a client sends, does not read, or
// never answers.
//
// Everything that comes from a client is untrusted. In assay-run -- CMD the gateway serves one run, the command's
// ([Config.Run]). In serve it opens a run for each runs.start ([Config.Open]).
package gateway
