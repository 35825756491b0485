//go:build linux && amd64

package truthtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEqualRunsHaveEqualSurfaces holds for workloads that name nothing at random.
func TestEqualRunsHaveEqualSurfaces(t *testing.T) {
	need(t)
	for _, w := range workloads {
		switch w.name {
		case "files", "tar", "find", "small files":
		default:
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			var first recording
			dir := t.TempDir() + "/w"
			for i := range 2 {
				fresh(t, dir)
				r := record(t, dir, nil, "/bin/sh", "-c", w.script)
				r.surface.RunID = ""
				if i == 0 {
					first = r
				} else if d := cmp.Diff(first.surface, r.surface); d != "" {
					t.Errorf("(-first +second):\n%s", d)
				}
			}
			if len(first.surface.FilesystemPaths) == 0 || len(first.surface.ProcessExecs) == 0 {
				t.Errorf("nothing in %+v", first.surface)
			}
		})
	}
}
