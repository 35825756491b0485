// Package judge judges bundles: one by rules ([Judge]), for a pipeline, and two by
// what differs between them ([Compare]).
//
// A rule passes, fails, or is unknown: what a bundle's health does not support
// cannot pass. A violation that was observed fails a rule whatever the health
// is; that none was observed passes it only when all would have been. A rule
// that is unknown does not pass unless the rule file allows that by name.
//
// Rules, and what they read, are bounded, checked before any bundle is read,
// and the same everywhere: nothing depends on the machine that judges.
//
// A difference counts only when the health of the other bundle supports it: what a
// partial record does not show may have happened. So the answer is one of three:
// equal, different, or unknown. [Capability] is the parent format,
// assay.runner.capability_diff.v0, which compares without that distinction and says
// in its status whether it may be relied on.
package judge
