// Package view reads what a bundle says about a run: the events that match a
// [Filter], its processes as a [Table], what it did as a [Summary], and whether
// what it does not show can be ruled out ([Claim]).
//
// Every reader opens bundles with [Open], which verifies them. Memory is bounded:
// a list keeps its first entries and counts the rest. Text for people escapes every
// control character of a recorded name, so that no bundle can control a terminal.
package view
