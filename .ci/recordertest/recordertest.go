// Package recordertest builds assay-run for the tests of the programs that use it. Only tests use it.
package recordertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// M runs the tests of a package in a folder of cmd, and then removes what Build made.
type M struct{ *testing.M }

// Run returns the exit code.
func (m M) Run() int {
	defer func() { os.RemoveAll(built) }()
	return m.M.Run()
}

// built is the directory that Build made.
var built string

// Build builds assay-run as make build does, once, and returns the directory that has it. Where the source is not at
// hand, ASSAY_TEST_PROGRAMS names a directory that has it already.
var Build = sync.OnceValues(func() (dir string, err error) {
	if dir := os.Getenv("ASSAY_TEST_PROGRAMS"); dir != "" {
		return dir, nil
	}
	if built, err = os.MkdirTemp("", "recordertest-*"); err != nil {
		return "", err
	}
	args := []string{"build", "-o", filepath.Join(built, "assay-run")}
	if runtime.GOOS == "linux" {
		args = append(args, "-ldflags=-E=github.com/assay-run/assay-run/cgroup/steps.entry")
	}
	if out, err := exec.Command("go", append(args, "../assay-run")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build assay-run: %w\n%s", err, out)
	}
	return built, nil
})

// Observes reports whether the assay-run in dir can record a kernel layer here.
func Observes(t testing.TB, dir string) bool { return runs(t, dir, "--kernel", "require") }

// LimitsMemory reports whether the assay-run in dir can limit a run's memory here.
func LimitsMemory(t testing.TB, dir string) bool {
	return runs(t, dir, "--kernel", "off", "--memory", "1G")
}

// runs reports whether the assay-run in dir can make a run with these flags.
func runs(t testing.TB, dir string, flags ...string) bool {
	scratch := t.TempDir()
	args := append(flags, "-q", "--spool-dir", scratch, "-o", filepath.Join(scratch, "x.tar.gz"), "--", "true")
	return exec.Command(filepath.Join(dir, "assay-run"), args...).Run() == nil
}

// Status is a command of scripts. It runs a command and checks its exit status: status N COMMAND ARG...
func Status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARG...]")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("%s exited with %s, want %s", args[1], got, args[0])
	}
}

// Pack is a command of scripts. It packs a directory as assay-run packs a bundle, whatever is in it: pack DIR BUNDLE.
// Not every version of tar writes those headers.
func Pack(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: pack DIR BUNDLE")
	}
	dir := ts.MkAbs(args[0])
	names := []string{"manifest.json"}
	ts.Check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && d.Type().IsRegular() && name != names[0] {
			names = append(names, filepath.ToSlash(name))
		}
		return err
	}))
	slices.Sort(names[1:])
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		ts.Check(err)
		ts.Check(w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0),
			Format: tar.FormatUSTAR,
		}))
		_, err = w.Write(data)
		ts.Check(err)
	}
	ts.Check(w.Close())
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), packed.Bytes(), 0o600))
}
