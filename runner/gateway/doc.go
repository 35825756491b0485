// Package gateway is the agent-facing side of a run: a JSON-RPC 2.0 server to
// which an agent registers its tools and proposes calls, and which checks,
// dispatches, audits and records them. PROTOCOL.md beside this file lists the
// methods for those who write a client.
//
// The gateway never runs a tool itself: it calls the client back with
// tools.execute on the same connection. A tool call goes this way:
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
// These are 16 steps from the socket to the turn. All of them run in the goroutine
// that read the proposal. While it waits in Request.Call, another goroutine reads on
// and delivers the result. On the way the call has seven forms: a message, a frame, a
// Request, a submission, a call, an Answer, a turn.
//
// A goroutine for each proposal costs little. A call takes 37 us on one CPU, with
// client and sockets. It took 36 us when the goroutine that read the answer resumed
// the proposal. The bare exchange of its messages takes 16 us (AMD EPYC, Linux 6.18,
// BenchmarkDispatch and BenchmarkEcho).
//
// Vocabulary: a call is one action that was submitted. It ends in exactly one way
// and leaves exactly one line in the audit layer. A run is what runs.start opens.
// While it is open, each call is also one turn.
//
// Promises: the gateway sends an answer only after it has written what the answer
// says, so that the record survives a SIGKILL of the gateway. Only the recorder
// numbers turns. Memory is bounded whatever a client sends, does not read, or never
// answers.
//
// Everything that comes from a client is untrusted. In assay-run -- CMD the gateway
// serves one run, the command's own ([Config.Run]). In serve it opens a run for each
// runs.start ([Config.Open]).
package gateway
