//go:build !linux || (!amd64 && !arm64)

package kernel

import (
	"context"
	"os"
)

// Preload does nothing.
func Preload(int) {}

// WaitForGuard does nothing.
func WaitForGuard(<-chan struct{}) {}

// PreloadIfPinned does nothing.
func PreloadIfPinned(int) {}

// DiscardPreload does nothing.
func DiscardPreload() {}

// Observer cannot be made on this system.
type Observer struct{}

// Open returns an [*Unavailable]: there is no eBPF observer for this system.
func Open(context.Context, Config) (*Observer, error) {
	return nil, &Unavailable{Reasons: []Reason{{
		Code:    CodeNotLinux,
		Message: "there is no kernel observer for this system",
		Remedy:  "run on Linux, x86-64 or arm64",
	}}}
}

// Read, Stop, Report and Close exist so that callers build everywhere.
func (o *Observer) Read(func(*Event) error, func(uint64)) error { return nil }

// Stop does nothing.
func (o *Observer) Stop() error { return nil }

// Own does nothing.
func (o *Observer) Own(*os.File) {}

// Report is empty.
func (o *Observer) Report() Report { return Report{} }

// Close does nothing.
func (o *Observer) Close() error { return nil }

// Present is empty.
func (o *Observer) Present() []Present { return nil }

// Enter returns: there are no roles to play.
func Enter() {}

// Afterwards is nil: nothing is left behind.
func Afterwards() []string { return nil }

// Sweeper cannot be made on this system, and is not needed.
type Sweeper struct{}

// StartSweeper starts nothing.
func StartSweeper() (*Sweeper, error) { return nil, nil }

// Remove does nothing.
func (s *Sweeper) Remove(...string) {}

// Close does nothing.
func (s *Sweeper) Close() error { return nil }

// HostObserver is an observer that is pinned on this host.
type HostObserver struct {
	Path     string `json:"path"`
	Own      bool   `json:"own"`
	Kept     bool   `json:"kept"`
	Sessions int    `json:"sessions"`
	Problem  string `json:"problem,omitempty"`
}

// HostObservers fails as Open does.
func HostObservers() ([]HostObserver, error) { return nil, StartObserver() }

// StartObserver fails as Open does.
func StartObserver() error {
	_, err := Open(context.Background(), Config{})
	return err
}

// StopObserver has nothing to stop.
func StopObserver() (removed, used int, err error) { return 0, 0, nil }

// Sweep has nothing to free.
func Sweep() (slots, sets int, err error) { return 0, 0, nil }

// SweepBuilds has nothing to free.
func SweepBuilds() (slots, sets int, err error) { return 0, 0, nil }

// Probe finds nothing here.
func Probe() ([]HookStatus, error) {
	_, err := Open(context.Background(), Config{})
	out := make([]HookStatus, hookCount)
	for h := range out {
		out[h] = HookStatus{Hook: HookID(h), Name: hooks[h].name, Required: hooks[h].required, Detail: err.Error()}
	}
	return out, err
}
