// Package signals catches the signals that assay-run passes on to a command.
//
// To start to catch a signal, Go switches threads twice, which takes some 40 µs, and there
// are fifty signals. In a program that does not ask for them, Go ignores most of them. For
// these this package has a signal handler of its own on Linux, in assembly, which sets the
// signal's bit in a word and adds to an eventfd: to set the handler takes one system call
// each, and Go does not notice. A signal that the process was started with blocked is left to
// Go, which unblocks it in one thread.
package signals
