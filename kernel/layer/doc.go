// Package layer makes the kernel layer of a run out of decoded kernel events.
//
// A [Builder] puts events in the order of their time, keeps the process table
// (each process, what it executed, which process started it), gives each event its
// class, and emits [schema.KernelEvent] lines. A [surface.Builder] receives the same
// lines and gathers what the program itself did. [Health] derives what a reader may
// claim from the observer's report and the builder's counts.
//
// All of it is bounded: it holds what happened in the last few milliseconds,
// one entry per live process and a fixed number of ended ones, and a fixed
// number of names. What it discards is counted.
//
// Nothing here starts a goroutine or is safe for concurrent use: one goroutine
// owns a Builder and its surface.
package layer
