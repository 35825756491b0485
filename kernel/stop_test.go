//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"slices"
	"testing"
)

// Stop lets Read end while it waits for the comparison of a pinned observer with this
// build, and the report says what that found.
func TestReadEndsBeforeTheComparison(t *testing.T) {
	o, err := Open(t.Context(), Config{CgroupPath: newCgroup(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	compared := make(chan error)
	o.loaded.suspect = &suspect{found: compared}
	read, stopped := make(chan error, 1), make(chan error, 1)
	go func() { read <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
	go func() { stopped <- o.Stop() }()
	if err := <-read; err != nil {
		t.Error(err)
	}
	compared <- errors.New("it is another")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(o.Report().Reasons, func(r Reason) bool { return r.Code == CodeTampered }) {
		t.Error("the report does not say that the observer is another")
	}
}
