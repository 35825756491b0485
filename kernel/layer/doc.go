// Package layer makes the kernel layer of a run out of decoded kernel events.
//
// A [Builder] puts events in the order of their time, keeps the process table
// (who is which instance of what, who started whom), gives each event its
// class, and hands out [schema.KernelEvent] lines, also to a [surface.Builder],
// which gathers what the program itself did. [Health] says, from the observer's
// report and the builder's counts, what may be claimed.
//
// All of it is bounded: it holds what happened in the last few milliseconds,
// one entry per live process and a fixed number of ended ones, and a fixed
// number of names. What was let go is counted.
//
// Nothing here starts a goroutine or is safe for concurrent use: one goroutine
// owns a Builder and its surface.
package layer
