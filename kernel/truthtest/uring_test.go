//go:build linux && amd64

package truthtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// Where .ci/deps installs Node.js, by its release.
const nodes, nodeIn = "/opt/assay-run-nodes/", "/node_modules/node/bin/node"

// TestNodesThatUseIOUring runs releases of Node.js whose event loop sends its
// changes through io_uring: that costs the layer nothing.
func TestNodesThatUseIOUring(t *testing.T) {
	need(t)
	for _, release := range []string{"22", "24"} {
		t.Run(release, func(t *testing.T) {
			node := nodes + release + nodeIn
			if _, err := os.Stat(node); err != nil {
				t.Skipf("%v: .ci/deps installs it", err)
			}
			dir := t.TempDir()
			r := record(t, dir, nil, node, filepath.Join(source(t), "testdata/files.js"))
			r.claims(t)
			if r.health.KernelState != schema.Complete {
				t.Errorf("kernel_state is %s", r.health.KernelState)
			}
			want := []string{"mkdir W/d", "openat W/d/a", "openat W/d/none ENOENT", "rename W/d/a -> W/d/b",
				"link W/d/b -> W/d/hard", "symlink W/d/soft -> b",
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

// A socket that io_uring made is as good a way past the hooks as any other.
func TestPeerSetCountsSocketsOfIOUring(t *testing.T) {
	need(t)
	for name, scope := range map[string]string{"uring-socket": schema.DiagnosticOnly,
		"uring-datagram": schema.PeerSet} {
		r := record(t, t.TempDir(), nil, helper, name)
		if got := r.health.NetworkEndpointClaimScope; got != scope {
			t.Errorf("%s: the scope is %s, want %s", name, got, scope)
		}
	}
}

// A request that opens claims has its own line as well, and each is counted once.
func TestControlMessagesOfIOUring(t *testing.T) {
	need(t)
	dir := t.TempDir()
	r := record(t, dir, nil, helper, "uring-control")
	r.claims(t)
	if n := r.sum(dir, "sendto 127.0.0.1:9"); n != 1 {
		t.Errorf("%d lines have the datagram", n)
	}
	var open string
	for _, o := range r.health.Open {
		open += o.String() + "\n"
	}
	for _, want := range []string{"IP_RETOPTS (1x)", "not seen to read (1x)"} {
		if !strings.Contains(open, want) {
			t.Errorf("no %s in\n%s", want, open)
		}
	}
	for _, h := range r.health.Hooks {
		if h.Seen != h.Filtered+h.Coalesced+h.Emitted+h.Dropped {
			t.Errorf("the account of %+v", h)
		}
	}
}

// What a command that io_uring takes to a device, or to another ring, does there is not seen.
func TestCommandsOfIOUring(t *testing.T) {
	need(t)
	run, bundle := prepare(t, t.TempDir(), nil, helper, "uring-command")
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.claims(t, "io_uring_commands")
}

// TestOperationOfALaterKernel records with a build that knows fewer operations
// than this kernel has.
func TestOperationOfALaterKernel(t *testing.T) {
	layertest.Host(t)
	need(t)
	table, err := os.ReadFile("../uring.go")
	if err != nil {
		t.Fatal(err)
	}
	from := strings.Index(string(table), "\t54: {")
	if from < 0 {
		t.Fatal("the table of operations has another form")
	}
	to := from + strings.Index(string(table[from:]), "\n}\n")
	tmp := t.TempDir()
	older := filepath.Join(tmp, "uring.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(filepath.Dir(source(t)),
		"uring.go"): older}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{older: append(table[:from:from], table[to+1:]...),
		filepath.Join(tmp, "overlay.json"): overlay} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := program
	t.Cleanup(func() { program = now })
	program = filepath.Join(tmp, "older")
	build := exec.Command("go", "build", "-overlay", filepath.Join(tmp, "overlay.json"), "-o", program,
		"../../cmd/assay-run")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	run, bundle := prepare(t, dir, nil, helper, "uring") // which binds with operation 56
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	why := slices.DeleteFunc(slices.Clone(r.health.Reasons), func(r schema.Reason) bool {
		return r.Subject != "kernel"
	})
	if r.health.KernelState != schema.Partial || len(why) != 1 || !strings.Contains(why[0].Message, "operation 56") {
		t.Errorf("kernel_state is %s: %+v", r.health.KernelState, why)
	}
	r.claims(t, "io_uring_unknown_operation")
	if got := r.health.NetworkEndpointClaimScope; got != schema.DiagnosticOnly {
		t.Errorf("the scope is %s", got)
	}
}
