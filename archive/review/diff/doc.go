// Package diff tells what differs between two runs: what they executed, read,
// wrote and contacted, which tools were called, how policy decided, how they
// ended, and what of that could be observed at all.
//
// A difference counts only when the health of the other bundle supports it:
// what a partial record does not show may have happened. So the answer is one
// of three: equal, different, or unknown. [CapabilityOf] is the parent format,
// assay.runner.capability_diff.v0, which compares without that distinction and
// says in its status whether it may be relied on.
package diff
