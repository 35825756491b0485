// Package query answers questions about a bundle: which events match a
// [Filter], and what the run did, as a [Summary].
//
// Everything streams through the bundle once and keeps a bounded amount: the
// processes that matter to the question, the first and busiest of what is
// listed, and counts of the rest. What is written for people has every control
// character of a recorded name escaped, so that no bundle can drive a
// terminal.
package query
