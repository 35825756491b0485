// Package startup finds what programs outside of a sandbox obey when they start: the configuration, hooks and pointers
// that git would read, and the start-up files of shells, editors and agents.
//
// # Vocabulary
//
// [Search] looks through directories once and makes a [Set]. A sandbox keeps the files of the set from being written.
// The facts of the set are what programs would obey because of these files: git would start this hook, with this
// content. [Set.Since] compares the facts of two sets. A file that only moves, or that nothing obeys, makes no
// difference: a fresh clone has no facts.
//
// Repositories are found as git finds them: a .git directory, a .git file that points to one, a symbolic link to
// either, and a directory that looks like a repository itself. Everything else follows from their configuration, with
// includes and the configuration of the user and the host. An include with a condition counts as if it held.
//
// lists.go has the files of all other programs, and the keys of git's configuration that start nothing.
package startup
