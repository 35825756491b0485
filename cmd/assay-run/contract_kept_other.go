//go:build !linux

package main

import (
	"context"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema/specfile"
)

// checkKept fails: it needs Linux.
func checkKept(context.Context, *app, string, *specfile.Spec, *keptFlags, bool) error {
	return runner.ErrPlatform
}
