// Package gitpatch writes and reads patches that `git apply` takes and that hold whole contents: the form of
// workspace/changes.patch.
//
// A patch is a list of sections, each about one path. A section that creates a text has it as the added lines of one
// hunk, for people to read. All other content is in git's binary form, "literal" and compressed. A section that
// changes or deletes a file names the id of the old content, which git compares; the old content itself is in no
// section. A file that becomes a link, or the reverse, takes two sections.
//
// The [Reader] takes what the [Writer] writes, and nothing else that git would: a patch from elsewhere is an error.
// It holds a line at a time in memory and hands out contents as they come, so that a patch that claims much costs
// nothing but the bytes that it really has. What a content says of itself (its length, its id) is compared.
//
// [Refuses] names the paths that git does not write to. They are no section of a patch.
package gitpatch
