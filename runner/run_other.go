//go:build !linux

package runner

import (
	"context"

	"github.com/assay-run/assay-run/schema"
)

// Run fails with ErrPlatform. Nothing is recorded.
func Run(_ context.Context, spec *Spec, _ Options) (*schema.Result, error) {
	return refused(spec, "not_linux", ErrPlatform)
}
