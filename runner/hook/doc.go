// Package hook reports the tool calls of agent programs to the run that they are part
// of, from what those programs tell their hooks.
//
// [Run] is what "assay-run hook AGENT" does: it reads what AGENT says on standard input
// and appends lines to the SDK event log of the run, under a name that is the agent's
// own. Outside of a run it reports nothing. It starts no process, writes to no other file, and
// never decides about a call.
//
// To add an agent: a function of the type reader in a file of its own, a line in
// agents, and a page in docs/agents.
package hook
