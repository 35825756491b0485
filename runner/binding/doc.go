// Package binding decides which kernel events belong to which tool call.
//
// A [Correlator] learns of tool calls from the SDK's log, the policy's log, the
// runner's own gateway and "assay-run call". It gets every kernel event once, in
// order of time, before the event's line is written, and binds the event by the
// strongest of:
//
//   - cgroup: its process is in the cgroup that was made for the call;
//   - env: the process was executed with ASSAY_TOOL_CALL_ID, or with a
//     TRACEPARENT whose span a line of the SDK's log had named by then;
//   - lineage: it descends from such a process (package kernel/layer finds
//     these two);
//   - window: the call was the only one open that the process can have worked for.
//
// All of this rests on the agent's word: it controls ids, environment and logs. A
// binding never hides an event; it only assigns it to a call.
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
// exact. What the client does after sending the answer, until the runner has read
// it, counts as part of the call.
//
// A client may say that it does its calls itself or in processes that it starts, as
// "assay-run mcp" does. The window of its calls binds the events of those processes
// alone: what an MCP client does while it waits belongs to no call.
//
// A line may say which shell command its call runs, and come when that has ended. Such a
// call is open from the exec of that command on, and its window binds the events of that
// process and its descendants alone. Equal commands belong to equal lines in their order. So
// what a shell does in no call waits, for the report alone, until its line has had the time
// to come: the lines of the kernel layer have then been written.
//
// The Correlator can bind an event as soon as it sees it, because the runner first
// reads the logs up to the event's time: no later line can have been written
// before. So it keeps no events but those that wait, of which there is a bound, and its
// memory is bounded by the number of calls, whatever the number of events. It does not
// bind an event by what it learns only later (a span that is named after its process was
// executed).
package binding
