package console

import "fmt"

// ExitError ends the program with Code. Err, if any, is told to the user.
type ExitError struct {
	Code int
	Err  error
}

func (e ExitError) Error() string { return fmt.Sprintf("exit %d: %v", e.Code, e.Err) }
func (e ExitError) Unwrap() error { return e.Err }

// hintError is an error with something to do about it.
type hintError struct {
	error
	hint string
}

func (e hintError) Unwrap() error { return e.error }

// WithHint adds to err what the user can do about it.
func WithHint(err error, format string, args ...any) error {
	return hintError{err, fmt.Sprintf(format, args...)}
}
