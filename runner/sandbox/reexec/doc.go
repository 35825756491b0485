// Package reexec lets a program that uses package sandbox start the process that
// stands between it and a command: its own binary under another name. Import it,
// for that alone, in package main:
//
//	import _ "github.com/assay-run/assay-run/runner/sandbox/reexec"
//
// A process that was started so never comes to main: this package's init
// function is its main function, and exits.
package reexec
