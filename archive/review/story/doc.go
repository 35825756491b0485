// Package story tells what a run did, in the order of time, for a person: its
// turns and tool calls, and what its processes really did meanwhile, with the
// output beside it. What repeats is told once, with a count.
//
// A [Teller] takes in what happened as it comes, from a bundle or from the spool
// of a run that is alive, and writes lines that are fit for a terminal: no name
// from the evidence reaches it raw.
package story
