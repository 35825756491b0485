package facts

import "github.com/assay-run/assay-run/schema"

// Certainty says whether what a line names is what was acted on. It is [Sure], or the reason for the doubt.
type Certainty string

// Certainties. If several reasons apply to a line, the first of this list counts.
const (
	Sure Certainty = ""
	// OtherMounts: the names are those of another mount namespace, which is not that of a container's root.
	OtherMounts Certainty = "its names are of another mount namespace"
	// Unplaced: the directory in which the name was looked up is not known.
	Unplaced Certainty = "a name is relative to a directory that is not known"
	// Cut: a name was too long for the record.
	Cut Certainty = "a name was cut"
	// Unreached: no name leads to the file from the root of the run.
	Unreached Certainty = "the file has no name below the root of the run"
	// Unresolved: links and ".." in the name are as the caller wrote them, or a name could not be read.
	Unresolved Certainty = "a name is as the caller wrote it"
	// FromCaller: the name was read from the caller's memory, which it could change meanwhile.
	FromCaller Certainty = "a name was read from the caller's memory, which the caller could change"
	// OtherTask: another thread or process could change what the kernel read from the caller's memory.
	OtherTask Certainty = "another thread or process could change the arguments"
	// MovedDirectory: another process of the run changed a directory or link on the way while the kernel followed it.
	// Who wants to hide what was opened can bring that about.
	MovedDirectory Certainty = "a process of the run changed a directory in the name while it was used"
)

// Doubtful reports whether there is a reason for doubt.
func (c Certainty) Doubtful() bool { return c != Sure }

// Placed reports whether the name, even if it is doubtful, is one below the root of the run or of a container.
func (c Certainty) Placed() bool {
	return c != OtherMounts && c != Unplaced && c != Unreached && c != Cut
}

// CertaintyOf returns the certainty of a line's names. The kernel itself gives the name of a file that was opened,
// executed or written, so the caller's memory does not matter for those. A file in anonymous memory needs no name.
func CertaintyOf(e *schema.KernelEvent) Certainty {
	if !e.Claimed && !e.UserMemory && !e.DirectoryClaimed && e.Marks == 0 && e.Truncated == 0 { // as most
		return Sure
	}
	marks := e.Marks
	if marks&schema.MarkMemfd != 0 {
		marks = 0
	}
	named := e.Kind == schema.KindOpen || e.Kind == schema.KindExec || e.Kind == schema.KindWrite
	switch {
	case marks&(schema.MarkMountNamespace|schema.MarkContainer) == schema.MarkMountNamespace:
		return OtherMounts
	case marks&schema.MarkRelative != 0:
		return Unplaced
	case e.Truncated&(schema.FieldValue|schema.FieldTarget) != 0:
		return Cut
	case marks&schema.MarkUnreachable != 0:
		return Unreached
	case marks&(schema.MarkUnreadable|schema.MarkUnresolved) != 0:
		return Unresolved
	case e.UserMemory:
		return FromCaller
	case e.Claimed && !named:
		return OtherTask
	case e.DirectoryClaimed:
		return MovedDirectory
	}
	return Sure
}

// CertaintyAsRead returns the certainty of how a line's names were read, apart from where they are and what was cut
// off: a layer counts these by themselves.
func CertaintyAsRead(e *schema.KernelEvent) Certainty {
	read := *e
	read.Marks, read.Truncated = 0, 0
	return CertaintyOf(&read)
}

// Elsewhere reports whether the names of a line are those of another mount namespace than the run's. If they are sure,
// they are names below the root of the line's container.
func Elsewhere(e *schema.KernelEvent) bool { return e.Marks&schema.MarkMountNamespace != 0 }

// Outcome says whether what a line tells of was done.
type Outcome uint8

const (
	// Done: it was done, or its result is not recorded for its kind.
	Done Outcome = iota
	// Failed: the call failed, so that nothing was done.
	Failed
	// Tried: the call was seen before it was made, and how it ended is not known.
	Tried
)

// OutcomeOf returns the outcome of a line.
func OutcomeOf(e *schema.KernelEvent) Outcome {
	switch {
	case e.Attempted:
		return Tried
	case e.Failed():
		return Failed
	}
	return Done
}

// ArgumentsOf returns the certainty of the arguments of a program.
func ArgumentsOf(e *schema.KernelEvent) Certainty {
	switch {
	case e.Truncated&schema.FieldArgv != 0:
		return Cut
	case e.Claimed:
		return OtherTask
	}
	return Sure
}

// EnvironmentOf returns the certainty of the names of a program's environment variables.
func EnvironmentOf(e *schema.KernelEvent) Certainty {
	if e.Truncated&schema.FieldEnvKeys != 0 {
		return Cut
	}
	return Sure
}

// InMemory reports whether the file of a line lives in anonymous memory, and Unlinked whether it has no name any more.
func InMemory(e *schema.KernelEvent) bool { return e.Marks&schema.MarkMemfd != 0 }
func Unlinked(e *schema.KernelEvent) bool { return e.Marks&schema.MarkDeleted != 0 }

// NameCut reports whether the first name of a line was too long for the record.
func NameCut(e *schema.KernelEvent) bool { return e.Truncated&schema.FieldValue != 0 }

// Renames reports whether a line gave a file another name and took the old one.
func Renames(e *schema.KernelEvent) bool { return e.Kind == schema.KindRename }

// Exchanges reports whether a line swapped two names.
func Exchanges(e *schema.KernelEvent) bool { return Renames(e) && e.Flags&renameExchange != 0 }
