// Package agentlog reads the logs that an agent writes about itself while it runs: the event log of its SDK, and the
// log of policy decisions.
//
// A [Follower] reads one log as it grows. For each line it gives two times on the runner's clock between which the
// line was written; the runner uses them to place tool calls in time. [DecodeSDK] and [DecodeDecision] check one
// line.
//
// Both logs belong to the agent, so nothing in them is trusted: a log may be missing, cut, replaced, endless,
// incomplete, a link, a pipe or a device. Reading a log never waits for anything but the disk, never changes the log,
// and takes bounded memory. Each fault is a [Problem] that names the file and the line and quotes no more than a
// name. All good lines are kept.
package agentlog
