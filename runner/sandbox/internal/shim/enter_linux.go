package shim

import (
	"errors"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// entered is set if this program runs the shim when it is started as one.
var entered bool

// errNone is returned by Available if this program cannot run a shim.
var errNone = errors.New(
	`this program cannot start the helper process that a sandbox needs: import _ "github.com/assay-run/assay-run/runner/sandbox/reexec" in its main package`,
)

// Available returns nil, or errNone.
func Available() error {
	if !entered {
		return errNone
	}
	return nil
}

// Enter runs the shim if this process was started as one, and then exits. Otherwise it returns.
func Enter() {
	entered = true
	steps.Enter()
}
