package archive

import (
	"context"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// TestWhatDoesNotVerifyIsReadAsFarAsItGoes reads every hostile bundle that has a
// manifest.
func TestWhatDoesNotVerifyIsReadAsFarAsItGoes(t *testing.T) {
	layertest.Host(t)
	ctx := context.Background()
	kernel := map[string]int{}
	for _, h := range hostileCorpus() {
		name := hostileName(h)
		r, report, err := Input{Name: "x", Path: name}.Verified(ctx)
		if err != nil || r == nil { // as Open has it
			if _, err := Open(name); err == nil {
				t.Errorf("%s can be opened, and was not: %v", h.name, err)
			}
			continue
		}
		if report.OK() {
			t.Errorf("%s verifies", h.name)
		}
		if _, err := r.Documents(ctx); err != nil {
			t.Errorf("documents of %s: %v", h.name, err)
		}
		for _, layer := range schema.Layers {
			for _, err := range r.Lines(ctx, layer) {
				if err != nil {
					t.Errorf("%s of %s: %v", layer, h.name, err)
				} else if layer == schema.KernelPath {
					kernel[h.name]++
				}
			}
		}
	}
	// The good lines around a bad one, and those before the damage, are there.
	for name, want := range map[string]int{"member-extra": 3, "line-that-is-no-json": 2, "line-that-is-empty": 2,
		"flipped-byte-in-a-member": 3} {
		if kernel[name] != want {
			t.Errorf("%s has %d lines, want %d", name, kernel[name], want)
		}
	}
}
