//go:build unix

package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/.ci/recordertest"
	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/cgroup/steps"
)

func TestMain(m *testing.M) {
	testscript.Main(leaktest.Of(besideARun{m}),
		map[string]func(){"assay-run": main, "mcp-files": mcpFiles, "mcp-agent": mcpAgent, "resident": resident,
			"without-bpf": withoutBPF})
}

// TestScripts runs every script of testdata/script: what a user sees, one
// behaviour a file.
//
// Conditions: [host] the layer of make test (see layertest); [root]; [linked] with the entry point of
// package steps; [cgroup] a session cgroup can be made; [kernel] a kernel layer can be recorded;
// [limit:NAME] the host can enforce that limit; [v1:NAME] there is a v1 hierarchy of that controller
// that can be written; [chattr] files can be made immutable; [namespaces] a command can get namespaces
// of its own; [binfmt] the kernel takes handlers for formats of programs; [freezer] there is a v1
// freezer that can be written; [root-of-init] process 1 has the root that the tests have.
// Commands: "field FILE KEY WANT" compares a
// value of a JSON document (a.b.0.c), "unpack BUNDLE DIR" extracts one.
//
// $CGROUP2 is where the cgroup2 hierarchy is mounted.
//
// $ID is different for each script of each test process: every --run-id has it
// in it, so that suites that run at the same time do not meet.
func TestScripts(t *testing.T) {
	host := cgroup.Probe()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("ID", uniqueID())
			env.Setenv("NOT_UTF8", "\xff")
			env.Setenv("CGROUP2", cgroup2())
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			env.Setenv("CACHE_DIRECTORY", filepath.Join(env.WorkDir, ".cache"))
			cache := os.Getenv("GOCACHE")
			if dir, err := os.UserCacheDir(); cache == "" && err == nil {
				cache = filepath.Join(dir, "go-build")
			}
			env.Setenv("GOCACHE", cache)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch name, arg, _ := strings.Cut(cond, ":"); name {
			case "root":
				return os.Geteuid() == 0, nil
			case "root-of-init":
				return sameFile("/", "/proc/1/root/"), nil
			case "host":
				return layertest.HostScripts(), nil
			case "linked":
				return steps.Linked(), nil
			case "cgroup":
				return host.Mode() != cgroup.None, nil
			case "kernel":
				return observes(), nil
			case "binfmt":
				err := unix.Access("/proc/sys/fs/binfmt_misc", unix.W_OK)
				return os.Geteuid() == 0 && err == nil, nil
			case "freezer":
				return unix.Access("/sys/fs/cgroup/freezer/cgroup.procs", unix.W_OK) == nil, nil
			case "namespaces":
				return exec.Command("unshare", namespaceFlags()...).Run() == nil, nil
			case "pytest":
				return exec.Command("/usr/bin/python3", "-c", "import pytest").Run() == nil, nil
			case "chattr":
				return immutable(), nil
			case "v1":
				return unix.Access("/sys/fs/cgroup/"+arg+"/cgroup.procs", unix.W_OK) == nil, nil
			case "limit":
				for _, c := range host.Controllers() {
					if c.Name == arg {
						return c.Available, nil
					}
				}
				return false, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"field":  field,
			"pack":   recordertest.Pack,
			"unpack": unpack,
		},
	})
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// cgroup2 is where the cgroup2 hierarchy is mounted, empty where it is not.
func cgroup2() string {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}

// namespaceFlags make the namespaces that a sandbox needs, as an ordinary user does.
func namespaceFlags() []string {
	flags := []string{"--mount", "--net", "--pid", "--fork", "true"}
	if os.Geteuid() != 0 {
		flags = append([]string{"--user", "--map-root-user"}, flags...)
	}
	return flags
}

// uniqueID returns a word of lower case letters and digits that nobody else has.
func uniqueID() string { return strings.ToLower(rand.Text()[:12]) }

// observes reports whether this host can record a kernel layer: whether a run
// that requires one works.
var observes = sync.OnceValue(func() bool {
	dir, err := os.MkdirTemp("", "assay-run-observes-*")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		return false
	}
	cmd := exec.Command(exe, "-q", "--kernel", "require", "--spool-dir", dir, "-o", filepath.Join(dir, "x.tar.gz"),
		"--", "true")
	cmd.Args[0] = "assay-run"
	return cmd.Run() == nil
})

// immutable reports whether this process can make a file immutable where scripts run.
var immutable = sync.OnceValue(func() bool {
	f, err := os.CreateTemp("", "assay-run-immutable-*")
	if err != nil {
		return false
	}
	f.Close()
	defer os.Remove(f.Name())
	return exec.Command("chattr", "+i", f.Name()).Run() == nil && exec.Command("chattr", "-i", f.Name()).Run() == nil
})

func field(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: field FILE KEY WANT")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &v); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	for _, key := range strings.Split(args[1], ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				ts.Fatalf("%s: no element %s in %v", args[0], key, at)
			}
			v = at[i]
		default:
			ts.Fatalf("%s: nothing at %s", args[0], key)
		}
	}
	got, _ := json.Marshal(v)
	text := strings.Trim(string(got), `"`)
	if (text == args[2]) == neg {
		ts.Fatalf("%s: %s is %s, want %s (negated: %v)", args[0], args[1], text, args[2], neg)
	}
}

func unpack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: unpack BUNDLE DIR")
	}
	dir := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(dir, 0o755))
	cmd := exec.Command("tar", "-C", dir, "-xf", ts.MkAbs(args[0]))
	if strings.HasSuffix(args[0], ".zst") { // tar runs a program for it, which not every machine has
		f, err := os.Open(ts.MkAbs(args[0]))
		ts.Check(err)
		defer f.Close()
		plain, err := zstd.NewReader(f)
		ts.Check(err)
		defer plain.Close()
		cmd = exec.Command("tar", "-C", dir, "-x")
		cmd.Stdin = plain
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		ts.Fatalf("tar: %v\n%s", err, out)
	}
}
