// Package repository makes git repositories anew at the commit that is checked out: with the same working tree, index,
// configuration and hooks, and without any object that the commit does not reach. Other branches, stashes, logs and
// what they led to are not in them.
//
// # Vocabulary
//
// [Make] makes a copy of a directory a repository of its own. A [Book] is a repository that a command has instead of
// its directory's own. [Book.Return] brings what the command committed back into the original.
//
// # Promises
//
// git starts nothing that a repository's configuration names. The original changes only in Return, and only by what the
// command added: what else came into it in the meantime stays.
package repository
