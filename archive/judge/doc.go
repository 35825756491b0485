// Package judge judges one bundle by rules ([Judge]), for a pipeline, and compares two
// bundles ([Compare]).
//
// A rule passes, fails, or is unknown. It fails if a violation was observed. It passes
// if none was observed and the bundle's health says that every violation would have been.
// Otherwise it is unknown, which stops the pipeline unless the rule file allows it by name.
//
// Rules are limited in number and cost, and checked before any bundle is read. A verdict
// does not depend on the machine that judges.
//
// A difference between two bundles counts only if the health of the other bundle supports
// it, since what an incomplete record does not show may have happened. So the answer is
// equal, different, or unknown. [Capability] is an older format,
// assay.runner.capability_diff.v0, which compares without that distinction; its status
// says whether the result is reliable.
package judge
