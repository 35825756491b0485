//go:build linux && amd64

package truthtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestNodesThatUseIOUring runs releases of Node.js whose event loop sends its
// changes through io_uring: that costs the layer nothing.
func TestNodesThatUseIOUring(t *testing.T) {
	need(t)
	for _, release := range []string{"22", "24"} {
		t.Run(release, func(t *testing.T) {
			node := "/opt/assay-run-nodes/" + release + "/node_modules/node/bin/node"
			if _, err := os.Stat(node); err != nil {
				t.Skipf("%v: .ci/deps installs it", err)
			}
			dir := t.TempDir()
			r := record(t, dir, nil, node, filepath.Join(source(t), "testdata/files.js"))
			r.claims(t)
			if r.health.KernelState != schema.Complete {
				t.Errorf("kernel_state is %s", r.health.KernelState)
			}
			want := []string{"mkdir W/d", "openat W/d/a", "openat W/d/none ENOENT", "rename W/d/a -> W/d/b", "link W/d/b -> W/d/hard", "symlink W/d/soft -> b",
				"unlink W/d/soft", "unlink W/d/hard", "unlink W/d/b", "rmdir W/d"}
			for _, w := range want {
				if n := r.sum(dir, w); n == 0 {
					t.Errorf("not in the layer: %s", w)
				}
			}
			var written uint64
			for i := range r.events {
				if e := &r.events[i]; e.Value == dir+"/d/a" && e.Kind == schema.KindWrite {
					written += e.BytesOut
				}
			}
			if written != 5 {
				t.Errorf("%d bytes written, want 5", written)
			}
			for _, h := range r.health.Hooks {
				if h.Name == "io_uring_submit_req" && (h.Seen == 0 || h.Filtered != h.Seen) {
					t.Errorf("requests of the event loop: %+v", h)
				}
			}
		})
	}
}
