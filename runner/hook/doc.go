// Package hook reports an agent program's tool calls to the run that the program is part of. It reads them from the
// events that the program sends to its hooks.
//
// [Run] implements "assay-run hook AGENT": it reads AGENT's events from standard input and appends lines to the SDK
// event log of the run, under the agent's own name. [Follow] does the same with the files in which Codex keeps its
// sessions. Outside a run, both report nothing. They start no process, write to no other file, and never allow or
// deny a call.
//
// To add an agent: write a function of type reader in a file of its own, add it to the map readers, and write a page
// in docs/agents.
package hook
