//go:build !linux

package runner

import (
	"context"
	"errors"
	"os"

	"github.com/assay-run/assay-run/schema"
)

// ErrPlatform is what Run returns where runs cannot be contained.
var ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")

// Options are what a run needs from the world around it.
type Options struct {
	Recorder              Recorder
	Stdin, Stdout, Stderr *os.File
	Signals               <-chan os.Signal
}

// Run fails with ErrPlatform.
func Run(context.Context, *Spec, Options) (*schema.Result, error) {
	return nil, ErrPlatform
}
