package schema

// Times is how many occurrences the line stands for.
func (e *KernelEvent) Times() uint64 {
	if e.Repeat {
		return e.Count
	}
	return 1
}

// Failed reports whether the call is known to have failed. A connect that goes
// on in the background (EINPROGRESS) has not.
func (e *KernelEvent) Failed() bool {
	return e.HasResult && e.Result < 0 && (e.Kind != KindConnect || e.Result != -115)
}

// Errno returns the name of the error that the call failed with (ENOENT, ...),
// or "" when it did not.
func (e *KernelEvent) Errno() string {
	if !e.HasResult || e.Result >= 0 {
		return ""
	}
	return errnoName(-e.Result)
}

// Blocked reports whether the event is a policy denial.
func (e *KernelEvent) Blocked() bool {
	return e.Kind == KindFileBlocked || e.Kind == KindConnectBlocked
}

// Open flags of Linux on x86-64 and arm64 that this package derives from. The
// two differ in O_DIRECTORY, O_NOFOLLOW and O_DIRECT alone; none is used here
// but O_TMPFILE's own bit (fcntl.h: __O_TMPFILE), which is common.
const (
	openWrOnly  = 0o1
	openRdWr    = 0o2
	openCreat   = 0o100
	openExcl    = 0o200
	openTrunc   = 0o1000
	openAppend  = 0o2000
	openTmpfile = 0o20000000
)

// Writes reports whether an openat's flags ask for more than reading: write
// access, creation, truncation, or a mode that does not exist.
func (e *KernelEvent) Writes() bool {
	return e.Flags&(openWrOnly|openRdWr|openCreat|openTrunc|openAppend|openTmpfile) != 0
}

// OpenIntent is what v0's access_mode and operation_flags say about an openat's flags.
func OpenIntent(flags uint64) (access string, ops []string) {
	for _, op := range operations {
		if flags&op.bits != 0 {
			ops = append(ops, op.name)
		}
	}
	return accessMode(flags), ops
}

// Creates reports whether an openat's flags ask for creation.
func (e *KernelEvent) Creates() bool { return e.Flags&(openCreat|openTmpfile) != 0 }
