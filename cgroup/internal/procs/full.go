package procs

// CodeFull is cgroup.CodeFull.
const CodeFull = "cgroup_limit"

// FullError is cgroup.FullError.
type FullError struct {
	Path   string // of the cgroup that could not be made
	Reason string
	Remedy string
	Err    error // EAGAIN or ENOSPC
}

func (e *FullError) Error() string {
	return "cannot create cgroup " + e.Path + ": " + e.Reason + ": " + e.Err.Error()
}

func (e *FullError) Unwrap() error { return e.Err }
