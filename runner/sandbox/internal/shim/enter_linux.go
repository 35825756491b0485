package shim

import (
	"errors"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// entered reports whether this program becomes a shim when it is started as one.
var entered bool

// errNone is what a program gets that cannot become a shim.
var errNone = errors.New(
	`this program cannot start the helper process that a sandbox needs: import _ "github.com/assay-run/assay-run/runner/sandbox/reexec" in its main package`,
)

// Available is nil, or ErrNone.
func Available() error {
	if !entered {
		return errNone
	}
	return nil
}

// Enter becomes the shim that this process was started as, and then exits. It
// returns where it was not.
func Enter() {
	entered = true
	steps.Enter()
}
