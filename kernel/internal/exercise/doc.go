// Package exercise is the child process of the observer's self-test: this very program, as which
// it makes a list of system calls, see package steps. Its init function executes the list where
// the program was not linked to do that earlier. So this package imports little and comes first:
// the packages of the rest of the program take longer to initialize than the whole exercise.
package exercise
