//go:build !linux || (!amd64 && !arm64)

package notify

import (
	"os/exec"

	"github.com/assay-run/assay-run/kernel"
)

// Observer cannot be made on this system.
type Observer struct{}

// New returns a [*kernel.Unavailable].
func New(Config) (*Observer, error) { return nil, Probe() }

// Probe returns a [*kernel.Unavailable]: there is no seccomp on this system.
func Probe() error {
	return &kernel.Unavailable{Reasons: []kernel.Reason{{
		Code: kernel.CodeNotLinux, Message: "there is no kernel observer for this system",
		Remedy: "run on Linux, x86-64 or arm64",
	}}}
}

// Privileged reports false.
func Privileged() bool { return false }

// Enter does nothing: there is no shim.
func Enter() {}

// Start calls start with cmd, and observes nothing.
func (o *Observer) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error { return start(cmd) }

// Unavailable, Read, Stop, Report and Close exist so that callers build everywhere.
func (o *Observer) Unavailable() *kernel.Unavailable { return nil }

// Read does nothing.
func (o *Observer) Read(func(*kernel.Event) error, func(uint64)) error { return nil }

// Present is nil.
func (o *Observer) Present() []kernel.Present { return nil }

// Stop does nothing.
func (o *Observer) Stop() error { return nil }

// Report is empty.
func (o *Observer) Report() kernel.Report { return kernel.Report{} }

// Close does nothing.
func (o *Observer) Close() error { return nil }
