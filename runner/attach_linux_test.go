package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// TestAttachMissed: if a directory was removed before or while the observer looked at it, its container was missed,
// however the observation ends.
func TestAttachMissed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root attaches")
	}
	for when, remove := range map[string]func(string, *Target){
		"before": func(dir string, _ *Target) { os.Remove(dir) },
		"while":  func(dir string, to *Target) { to.Attached = func() { os.Remove(dir) } },
	} {
		t.Run(when, func(t *testing.T) {
			at, err := tree.Locate(fmt.Sprintf("/assay-run-missed-%s-%d", when, os.Getpid()))
			if err != nil {
				t.Fatal(err)
			}
			made, err := tree.Make(at, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			target := Target{Tree: made}
			remove(at, &target)
			if when == "before" {
				target.Attached = func() { stop(errors.New("the time is over")) }
			}
			var h schema.ObservationHealth
			log := newMemory()
			if _, err := Attach(ctx, specfile.New(), target,
				Options{Recorder: log, ScratchDir: t.TempDir(), OnHealth: func(now *schema.ObservationHealth) {
					h = *now
				}}); err != nil {
				t.Fatal(err)
			}
			late := slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool {
				return r.Code == kernel.CodeAttachedLate
			})
			if h.KernelState != schema.Partial || !late {
				t.Errorf("the layer is %s: %+v", h.KernelState, h.Reasons)
			}
		})
	}
}
