// Package agentlog takes in what an agent writes about itself while it runs:
// the event log of its SDK, and the log of policy decisions.
//
// A [Follower] reads one log as it grows and knows for each line between which
// two moments of the runner's clock it was written: that is what tool calls are
// placed in time by. [DecodeSDK] and [DecodeDecision] check one line.
//
// Both logs belong to the agent, so nothing in them is believed or relied on:
// a log may be missing, cut, replaced, endless, torn, a link, a pipe or a
// device. Reading one never waits for anything but the disk, never has an
// effect on what is read, and takes bounded memory. What is wrong is a
// [Problem] that names the file and the line and quotes no more than a name;
// all good lines are kept.
package agentlog
