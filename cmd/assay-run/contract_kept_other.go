//go:build !linux && !windows

package main

import (
	"context"

	"github.com/assay-run/assay-run/runner"
)

// checkKept fails: no changes are kept on this operating system.
func checkKept(context.Context, *app, string, *runner.Spec, *keptFlags, bool) error {
	return runner.ErrPlatform
}
