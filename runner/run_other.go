//go:build !linux

package runner

import (
	"context"
	"errors"

	"github.com/assay-run/assay-run/schema"
)

// ErrPlatform is what Run returns where runs cannot be contained.
var ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")

// Run fails with ErrPlatform. Nothing is recorded.
func Run(_ context.Context, spec *Spec, _ Options) (*schema.Result, error) {
	return refused(spec, "not_linux", ErrPlatform)
}
