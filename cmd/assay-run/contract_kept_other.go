//go:build !linux

package main

import (
	"context"

	"github.com/assay-run/assay-run/runner"
)

// checkKept fails: it needs Linux.
func checkKept(context.Context, *app, string, *runner.Spec, *keptFlags, bool) error {
	return runner.ErrPlatform
}
