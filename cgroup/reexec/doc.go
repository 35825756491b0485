// Package reexec lets a program that uses package cgroup start helper processes:
// the guard that ends a run whose runner was killed, and what puts commands into
// cgroups and in front of terminals. They are the program's own binary under
// another name. Import it, for that alone, in package main:
//
//	import _ "github.com/assay-run/assay-run/cgroup/reexec"
//
// A process that was started as a helper never comes to main: this package's
// init function is its main function, and exits. That is why no other package
// imports this one.
package reexec
