// Package gate judges bundles by rules, for a pipeline.
//
// A rule passes, fails, or is unknown: what a bundle's health does not support
// cannot pass. A violation that was observed fails a rule whatever the health
// is; that none was observed passes it only when all would have been. A rule
// that is unknown does not pass unless the rule file allows that by name.
//
// Rules, and what they read, are bounded, checked before any bundle is read,
// and the same everywhere: nothing depends on the machine that judges.
package gate
