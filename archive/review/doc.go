// Package review opens bundles for the people and pipelines that judge runs.
//
// [Open] verifies every bundle before anything is concluded from it, and keeps
// what was found beside the bundle: a caller that concludes (diff, gate, query)
// refuses a bundle that does not verify, one that shows says so. Each folder
// below is one way to look at bundles. All of it works offline, from the
// bundles alone, and claims no more than a bundle's observation health allows.
package review
