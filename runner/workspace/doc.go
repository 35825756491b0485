// Package workspace finds what a command changed in its workspace, and stores it in the bundle.
//
// [Begin] walks the tree before the command, [Comparison.Keep] after it. Neither copies anything: a file is unchanged
// if its inode, size, mode and times are. A program can set the modification time, but not the change time. To evade
// this, it would have to set the clock or write to the disk below the file system.
//
// The earlier content of a changed file is known in three cases: git's index has its id and the file's times; Begin
// hashed it since it was small; it is a link. The earlier content itself is never stored.
//
// New contents are stored in one of two places. workspace/changes.patch has everything that `git apply` can do, which
// is also the form for people. The rest is stored as blobs: paths below .git, edits of a file whose earlier id is not
// known, huge files with holes. workspace/changes.json lists every change, with exact modes and names, and says where
// the content is, or why it is not stored.
//
// [Apply] makes the stored changes in a copy of the workspace as it was before the command. It first compares the
// copy with the document's digests, so that changes are not made in a different workspace. [Copy] makes such copies.
//
// A content with a secret is not stored, and neither is its digest.
//
// Owners, extended attributes, times and hard links are not compared and not stored.
package workspace
