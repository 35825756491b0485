// Package view reads what a bundle says about a run: which events match a
// [Filter], its processes as a [Table], what it did as a [Summary], and what may
// be concluded from its silence ([Claim]).
//
// Every reader opens bundles with [Open], which verifies them. Memory is bounded:
// a reader keeps the processes that matter to its question, the first and busiest
// entries of each list, and counts of the rest. Text for people escapes every
// control character of a recorded name, so that no bundle can drive a terminal.
package view
