// Package workspace finds what a command left in its workspace, and keeps it in the bundle.
//
// [Begin] walks the tree before the command, [Comparison.Keep] after it. Neither copies anything: a file is unchanged
// if its inode, size, mode and times are. A program can set the modification time, not the change time, so only
// who sets the clock or writes to the disk below the file system escapes that.
//
// What a changed file held before is known in three cases: git's index has its id and the file's times; the file was
// among the small ones that Begin hashed; it is a link. The old content itself is never kept.
//
// New contents are in one of two places. workspace/changes.patch has all that `git apply` can do, which is also the
// form that people read. What it cannot do (a path below .git, an edit of a file whose old id is not known, a huge file
// with holes) is in a blob of its own. workspace/changes.json lists every change, with exact modes and names, and
// says where the content is, or why it is not kept.
//
// [Apply] makes the kept changes in a copy of the workspace as it was before the command. It compares that with the
// digests that the document has, so that changes of one workspace are not made in another. [Copy] makes such copies.
//
// A content that holds a secret is not kept at all, nor is its digest.
//
// Owners, extended attributes, times and hard links between files are not compared and not kept.
package workspace
