//go:build linux && amd64

package truthtest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// equalWork is what TestEqualRunsHaveEqualSurfaces runs: the workload of that name, or a script.
var equalWork = []struct {
	name, script string
	programs     []string
	// differs names the lines that differ, by a regular expression, and why they do.
	differs, why string
}{
	{name: "shell pipelines"}, {name: "files"}, {name: "odd names"}, {name: "python"}, {name: "node"}, {name: "sqlite"},
	{name: "tar"}, {name: "find"}, {name: "small files"}, {name: "curl"}, {name: "make"}, {name: "gpg"},
	{name: "archives"}, {name: "ssh-keygen"},
	{name: "git", programs: []string{"git"}, script: `set -e; git init -q -b main r; cd r
for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -q -m c$i; done
echo z >> f1; git stash -q; git stash pop -q; echo new > u; git stash -q -u; git stash pop -q; git checkout -q -b side HEAD~1; git gc -q; cd ..; git clone -q r c`},
	{name: "perl", programs: []string{"perl"},
		script: `perl -e 'use File::Temp qw(tempfile tempdir); my ($f) = tempfile(UNLINK => 1); print $f 1;
my $d = tempdir(CLEANUP => 1); open(G, ">", "$d/x"); close G; tempfile("abXXXXXXXXXX", TMPDIR => 1, UNLINK => 1, SUFFIX => ".dat") for 1 .. 3; tempdir(CLEANUP => 1) for 1 .. 5'`},
	{name: "ruby", programs: []string{"ruby"},
		script: `ruby -rtmpdir -rtempfile -e 'Dir.mktmpdir { |d| File.write(d + "/x", 1) }; Dir.mktmpdir(["ab", ".d"]) {}; Tempfile.create("foo") { |f| f.write 1 }; Tempfile.new(["q", ".txt"]).close!'`},
	{name: "node mkdtemp", programs: []string{"node"},
		script: `node -e 'const fs = require("fs"); for (const p of ["a-", "foo-", "x."]) {
const d = fs.mkdtempSync(process.env.TMPDIR + "/" + p); fs.writeFileSync(d + "/f", "1"); fs.writeFileSync(d + ".sock", "1"); fs.renameSync(d + "/f", d + "/g"); fs.rmSync(d + ".sock"); fs.rmSync(d, {recursive: true}) }'`},
	{name: "cc", programs: []string{"cc"},
		script: `set -e; printf 'int main(void) { return 0; }\n' > a.c; cc -O2 -o a a.c; ./a; cc -O1 -flto -o l a.c; cc -c a.c; ar rc l.a a.o`},
	{name: "go", programs: []string{"go"},
		script: `set -e; export PATH=$HOSTPATH GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local GOTELEMETRY=off
mkdir m; cd m; printf 'module x\ngo 1.21\n' > go.mod; printf 'package main\nfunc main() { println(1) }\n' > main.go; go build -p 1 -o x . && go run . 2>/dev/null`,
		differs: `^DIR/cache/[0-9a-f]{2}(/|$)`, why: "names in Go's build cache are hashes of the directory"},
	{name: "cargo", programs: []string{"cargo"},
		script: `set -e; export PATH=$HOSTPATH CARGO_HOME=$PWD/home RUSTUP_HOME=$HOSTHOME/.rustup HOME=$PWD
cargo -q init --vcs none --name x p; cd p; cargo -q build --offline -j 1; ./target/debug/x > out; echo "// x" >> src/main.rs; cargo -q build --offline -j 1`},
	{name: "java", programs: []string{"javac", "java"}, script: `set -e
printf 'class A { public static void main(String[] a) throws Exception { java.nio.file.Files.delete(java.nio.file.Files.createTempFile("x", ".y")); java.io.File.createTempFile("abc", null).delete(); } }\n' > A.java
javac A.java; java -XX:TieredStopAtLevel=1 A`},
	{name: "npm", programs: []string{"npm"},
		script: `set -e; mkdir p q; cd q; npm init -y > /dev/null; cd ../p; npm init -y > /dev/null; npm install --no-audit --no-fund ../q > /dev/null; npm ls > /dev/null`},
	{name: "mktemp", script: `set -e; f=$(mktemp); echo 1 > $f; d=$(mktemp -d); cp $f $d/x; rm -r $f $d; seq 200000 | sort -S 1M -R > s; sed -i s/1/2/ s; bash -c 'cat <<< hello' > o; rm "$(mktemp)"`},
}

// TestEqualRunsHaveEqualSurfaces runs each workload twice, in other directories.
func TestEqualRunsHaveEqualSurfaces(t *testing.T) {
	layertest.Host(t)
	need(t)
	server = httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for _, work := range equalWork {
		t.Run(work.name, func(t *testing.T) {
			w := &workload{script: work.script, programs: work.programs}
			if w.script == "" {
				all := slices.Concat(workloads, longWorkloads)
				w = all[slices.IndexFunc(all, func(w *workload) bool { return w.name == work.name })]
			}
			need(t, w.programs...)
			base, err := os.MkdirTemp("/var/lib", "assay-run-equal-") // below /tmp, known makers are looked for
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(base)
			var first map[string]bool
			for _, name := range []string{"one", "other"} {
				dir := filepath.Join(base, name)
				fresh(t, dir)
				r := record(t, dir, append(w.env(t), "TMPDIR=/tmp"), "/bin/sh", "-c", w.script)
				lines := map[string]bool{}
				for line := range surfaceLines(r.surface) {
					lines[strings.ReplaceAll(line, dir, "DIR")] = true
				}
				if first == nil {
					first = lines
					continue
				}
				for _, line := range differing(first, lines) {
					if work.differs == "" || !regexp.MustCompile(work.differs).MatchString(line[2:]) {
						t.Error(line)
					}
				}
			}
			if len(first) < 5 {
				t.Errorf("%d lines", len(first))
			}
		})
	}
}

// A script of one file has one surface under the distribution's Python, under one that
// is installed elsewhere, as pyenv installs them, and in a virtual environment.
func TestSameSurfaceUnderEveryPython(t *testing.T) {
	layertest.Host(t)
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
	r := record(t, dir, []string{"PATH=" + strings.Join(path, ":")}, "/bin/sh", "-c",
		"true; env true; nohup true 2>/dev/null; xargs true < /dev/null; no-such-program-anywhere || true; env "+
			"no-such-program-either || true")
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
