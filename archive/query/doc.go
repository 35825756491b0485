// Package query answers questions about a bundle: which events match a
// [Filter], and what the run did, as a [Summary].
//
// A query reads the bundle once and keeps a bounded amount in memory: the
// processes that matter to the question, the first and busiest entries of each
// list, and counts of the rest. Text for people escapes every control character
// of a recorded name, so that no bundle can drive a terminal.
package query
