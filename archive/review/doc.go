// Package review opens bundles for the people and pipelines that judge runs.
//
// [Open] verifies a bundle and returns the verification report with it. Packages
// that draw conclusions (diff, gate, query) refuse a bundle that does not verify;
// packages that only show a bundle print a warning. Each folder below is one way
// to look at bundles. All of them work offline, from the bundles alone, and claim
// no more than a bundle's observation health allows.
package review
