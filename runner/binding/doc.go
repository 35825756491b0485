// Package binding tells which kernel events belong to which tool call.
//
// A [Correlator] hears of tool calls from the SDK's log, the policy's log, the
// runner's own gateway and "assay-run call", and sees every kernel event once,
// in the order of time, before its line is written. Each event is bound by the
// strongest of:
//
//   - cgroup: its process is in the cgroup that was made for the call;
//   - env: the process was executed with ASSAY_TOOL_CALL_ID, or with a
//     TRACEPARENT whose span a line of the SDK's log had named by then;
//   - lineage: it descends from such a process (package kernel/layer finds
//     these two);
//   - window: the call was the only one open.
//
// All of it is what the agent says: ids, environment and logs are its own. A
// binding never hides an event, it only files it.
//
// # Windows
//
// The runner does not see when a line of a log was written, only between which
// two looks. So a call was certainly open from the look that found its start to
// the last look that did not find its end, and possibly from the last look that
// did not find its start to the one that found its end. An event belongs to a
// call by its window when it lies within the certain part and no other call was
// possibly open. In the possible part alone it is at the edge, with several
// possible calls in an overlap: both are counted and listed, and never bound.
//
// A call that the gateway dispatches is open from just before its client is
// asked until its answer has been read: both moments are the runner's own, and
// exact. What the client does between sending the answer and that counts to it.
//
// That can be decided when the event is seen, because the logs are read up to
// the event's time first: nothing that comes later can have been written
// before. So nothing is kept for a second look, and memory is bounded by the
// number of calls, whatever the number of events. What is only known later (a
// span that is named after its process was executed) is not bound.
package binding
