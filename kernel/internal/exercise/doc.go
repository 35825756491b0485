// Package exercise is the child process of the observer's self-test. It is this program, and
// executes a list of system calls: see package steps. Its init function executes the list if
// the program was not linked to do that earlier. So this package imports little and comes first:
// the packages of the rest of the program take longer to initialize than the whole exercise.
package exercise
