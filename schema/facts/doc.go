// Package facts says what the lines of a kernel layer mean: who acted, on what, whether that is sure, and what the
// run made. [Reader.Read] takes the lines in their order, while a run is recorded or from a bundle, and returns one
// [Line] for each. Every reader of a run asks this package, so that all give the same answer.
//
// # Processes
//
// A [Process] lasts from its fork to its exit, an [Instance] from a fork or an exec to the next one: it is what the
// exec id of a line names. An instance knows its parent, so that a reader can go up to the command of the run, and
// which network namespace its threads are in ([Network]).
//
// # Files
//
// The reader keeps the names that the run made, gave or changed as a tree of directory entries. Each entry leads to a
// [File], whose identity survives
//   - a rename of the file, or of any directory above it, since the entry moves with all that is below it;
//   - an exchange of two names;
//   - hard links: several entries lead to one File;
//   - symbolic links, which are files with a content, however they got their name; an event already has the names
//     behind them, so they are followed only for names that an event does not have, as those in arguments;
//   - bind mounts, as far as their source has a name: the entry leads to the source as well;
//   - a removal and a return: the name leads to another File then, and what was made under it stays Made.
//
// A reader that must know something of a name keeps it as a note of the [Name], which moves with the directories above
// it, or of the File. So no reader follows renames. [Reader.Arrived] and [Reader.Brought] tell of files that have a
// name since a directory above them was moved or linked, and [Reader.Changer] which program wrote a file last.
//
// A name is Made if the run gave it that name or wrote the file behind it. What the recorder, a check or a container
// engine does is not the run's: it makes nothing, though it may rename.
//
// Lines do not always come in the order in which things happened: the kernel counts repeats of a call and reports
// them later, and an event may arrive late. So no line takes away what an earlier one gave: a name that was removed or
// renamed still leads to what the run made of it, unless a rename put another file there. Where a later line shows
// that something was made before an earlier line executed it, [Line.Amends] names that earlier line.
//
// Memory is bounded. Names beyond the bound are counted ([Reader.Beyond]) and have no attributes. What a reader
// concludes of an unknown name then is its own affair; [Reader.MayHaveMade] is for those that must not miss anything.
//
// # Certainty
//
// The names of a line are [Sure], or doubtful with a reason: [Certainty]. A doubtful line happened, but perhaps to
// another file. In a container whose root is known, names are as sure as the host's. Only this package reads the
// members of a line that say so.
package facts
