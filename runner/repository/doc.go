// Package repository makes new git repositories at the commit that another one has checked out. They have the same
// working tree and index, and no object that neither the commit nor the index reaches. They lack other branches,
// stashes, logs and what these led to.
//
// # Vocabulary
//
// [Make] turns a copy of a directory into a repository of its own, with the same configuration and hooks. A [Book] is a
// repository that a command gets in place of its directory's own. It has no remotes, no hooks, and no configuration
// that starts programs. [Book.Return] brings what the command committed back into the original.
//
// # Promises
//
// git starts nothing that a repository's configuration names. The original changes only in Return, and only by what the
// command added. What others changed in it meanwhile stays.
package repository
