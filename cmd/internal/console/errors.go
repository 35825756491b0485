package console

import "fmt"

// ExitError ends the program with Code. Err is printed, if there is one.
type ExitError struct {
	Code int
	Err  error
}

func (e ExitError) Error() string { return fmt.Sprintf("exit %d: %v", e.Code, e.Err) }
func (e ExitError) Unwrap() error { return e.Err }

// HintError is an error with a hint: what the user can do about it.
type HintError struct {
	Err  error
	Hint string
}

func (e HintError) Error() string { return e.Err.Error() }
func (e HintError) Unwrap() error { return e.Err }

// WithHint adds to err what the user can do about it.
func WithHint(err error, format string, args ...any) error {
	return HintError{err, fmt.Sprintf(format, args...)}
}
