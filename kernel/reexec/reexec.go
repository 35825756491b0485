// Package reexec lets a program play the roles that package kernel starts it for:
// import it for that alone. Without it nothing is started: what a killed run left
// is freed by the next one, and the shared observer goes with its last run.
package reexec

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/notify"
)

func init() {
	kernel.Enter()
	notify.Enter()
}
