//go:build linux && amd64

package truthtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
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

// A script of one file has one surface under the distribution's Python, under one that
// is installed elsewhere, as pyenv installs them, and in a virtual environment.
func TestSameSurfaceUnderEveryPython(t *testing.T) {
	need(t, "/usr/bin/python3", "cp")
	base := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	version := run("/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])")
	elsewhere, venv, dir := base+"/versions/3", base+"/venv", base+"/w"
	for _, d := range []string{elsewhere + "/bin", elsewhere + "/lib", dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run("cp", "-L", "/usr/bin/"+version, elsewhere+"/bin/"+version)
	run("cp", "-r", "/usr/lib/"+version, elsewhere+"/lib/"+version)
	run("/usr/bin/python3", "-m", "venv", venv)
	script := base + "/one.py"
	if err := os.WriteFile(script, []byte(`
import json, os, re, sqlite3, ssl, subprocess, urllib.request
open("out", "w").write(json.dumps([re.sub("a", "b", "a"), os.getcwd()]))
print(len(open("out").read()))
`), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{script, dir + "/out"}
	for i, p := range want {
		want[i] = surface.Path(p)
	}
	slices.Sort(want)
	for _, python := range []string{"/usr/bin/python3", elsewhere + "/bin/" + version, venv + "/bin/python3"} {
		// What this host has every Python read elsewhere as it starts (site's .pth files).
		own := record(t, dir, nil, python, "-c", "").surface.FilesystemPaths
		own = slices.DeleteFunc(own, func(p string) bool {
			return strings.HasPrefix(p, surface.Path(base)) || strings.HasPrefix(p, "/usr/")
		})
		r := record(t, dir, nil, python, script)
		r.claims(t)
		got := slices.DeleteFunc(r.surface.FilesystemPaths, func(p string) bool {
			return p == surface.Path(base) || slices.Contains(own, p) // the first is listed for its modules
		})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", python, d)
		}
		if len(r.surface.ProcessExecs) != 1 {
			t.Errorf("%s: %q", python, r.surface.ProcessExecs)
		}
	}
}

// Programs that a shell looks for where they are not leave no line.
func TestLookUpsThatMissAreNoLines(t *testing.T) {
	need(t)
	dir := t.TempDir()
	path := []string{dir + "/a/bin", dir + "/b/bin", "/usr/local/sbin", "/usr/bin", "/bin"}
	r := record(t, dir, []string{"PATH=" + strings.Join(path, ":")}, "/bin/sh", "-c", "true; env true; nohup true 2>/dev/null; xargs true < /dev/null; no-such-program-anywhere || true; env no-such-program-either || true")
	r.claims(t)
	for _, p := range append(r.surface.FilesystemPaths, r.surface.ProcessExecs...) {
		if strings.Contains(p, "/a/bin/") || strings.Contains(p, "/b/bin/") || strings.Contains(p, "no-such-program") {
			t.Errorf("the surface has %s", p)
		}
	}
	missed := 0
	for i := range r.events {
		if e := &r.events[i]; e.Kind == schema.KindExecFailed && e.Class == schema.ClassLookup {
			missed++
		}
	}
	if missed < 5 { // nothing is dropped from the layer
		t.Errorf("%d look-ups in the layer", missed)
	}
}
