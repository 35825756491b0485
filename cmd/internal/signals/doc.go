// Package signals catches the signals that assay-run passes on to a command.
//
// Go takes two switches of threads, some 40 µs, for each signal, and there are fifty. But
// most of them it ignores in a program that does not ask for them. For these this package
// has a signal handler of its own on Linux, in assembly, which writes the signal's number to a
// pipe: that takes one system call each, and Go is none the wiser. A signal that the process
// was started with blocked is left to Go, which unblocks it in one thread.
package signals
