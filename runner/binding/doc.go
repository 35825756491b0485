// Package binding decides which kernel events belong to which tool call.
//
// A [Correlator] gets tool calls from the SDK's log, the policy's log, the runner's own gateway, models' answers and
// "assay-run call". It gets every kernel event once, in order of time, before the event's line is written, and binds
// the event by the strongest of:
//
//   - cgroup: its process is in the cgroup that was made for the call;
//   - env: the process was executed with ASSAY_TOOL_CALL_ID, or with a
//     TRACEPARENT whose span a line of the SDK's log had named by then;
//   - lineage: it descends from such a process (package kernel/layer finds
//     these two);
//   - window: the call was the only open one that the process can have worked for.
//
// All of this relies on the agent's word: it controls ids, environment and logs. A binding never hides an event; it
// only assigns it to a call.
//
// # Windows
//
// The runner does not see when a line of a log was written, only between which two polls. So a call was certainly
// open from the poll that found its start to the last poll that did not find its end, and possibly from the last poll
// that did not find its start to the one that found its end. An event belongs to a call by its window if it is within
// the certain part and no other call was possibly open. An event in the possible part only is at an edge; one with
// several possible calls is in an overlap. Both are counted and listed, and never bound.
//
// A call that the gateway dispatches is open from just before its client is asked until its answer has been read: the
// runner knows both times exactly. What the client does between sending the answer and the runner reading it counts
// as part of the call.
//
// A client may say that it executes its calls itself or in processes that it starts, as "assay-run mcp" does. The
// window of its calls then binds only the events of those processes: what an MCP client does while it waits belongs
// to no call.
//
// A line may name the shell command of its call, and may come after the command has ended. Such a call is open from
// the exec of that command on, and its window binds only the events of that process and its descendants. These
// events are the call's until its end has been read: an agent reports the end after the command has ended. Equal
// commands are matched with equal lines in order. So the events of a shell without a call wait until a line had
// enough time to come. By then the kernel layer's lines have been written, so only the report has the binding.
//
// Other events can be bound at once, because the runner first reads the logs up to the event's time: no later line
// can have been written before. So the Correlator keeps no events but those that wait, which are limited in number,
// and its memory depends on the number of calls, not of events. It does not bind an event by what it learns later,
// such as a span that is named after its process was executed.
package binding
