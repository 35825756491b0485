// Package story tells what a run did, in the order of time, for a person: its
// turns and tool calls, what its processes did during each, and the output they
// wrote. A repeated line is written once, with a count.
//
// A [Teller] reads events from a bundle, or from the spool of a live run as they
// are recorded, and writes lines that are safe for a terminal: it escapes every
// name that comes from the evidence.
//
// [Play] plays the recording of a run's terminal. The agent may be hostile: Play passes
// on text, colours and cursor movements, and leaves out sequences that make a terminal
// answer, change its title or the clipboard, or send what the mouse does.
package story
