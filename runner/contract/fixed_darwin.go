package contract

import "errors"

// isFixed returns false: runs with protected paths need Linux.
func (s *snapshot) isFixed(string) bool { return false }

func (s *snapshot) unfix(string) error { return errors.ErrUnsupported }
