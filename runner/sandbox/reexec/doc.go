// Package reexec lets a program that uses package sandbox start the process between it and a command: its own binary
// under another name. Import it in package main only for its side effect:
//
//	import _ "github.com/assay-run/assay-run/runner/sandbox/reexec"
//
// In a process that was started this way, main never runs: this package's init function does the work and exits.
package reexec
