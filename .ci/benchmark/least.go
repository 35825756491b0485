package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// least builds the program that only does what a run cannot do without: see
// testdata/least. pinned is where the observer is, or "" for a run without a kernel layer.
func (b *bench) least() func(pinned string, args ...string) func() *exec.Cmd {
	build := sync.OnceValue(func() string {
		bin := filepath.Join(b.dir, "least")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -E=github.com/assay-run/assay-run/cgroup/steps.entry", "-o", bin, "./.ci/benchmark/testdata/least")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		check(cmd.Run())
		return bin
	})
	return func(pinned string, args ...string) func() *exec.Cmd {
		return bare(append([]string{build(), pinned, filepath.Join(b.dir, "least.tar.gz")}, args...)...)
	}
}

// inPlace keeps the observer in place until end, and tells where it is pinned.
func (b *bench) inPlace() (pinned string, end func()) {
	check(exec.Command(b.bin, "observe", "start").Run())
	out, err := exec.Command(b.bin, "observe", "status", "--json").Output()
	check(err)
	var observers []struct {
		Path string
		Own  bool
	}
	check(json.Unmarshal(out, &observers))
	for _, o := range observers {
		if o.Own {
			pinned = o.Path
		}
	}
	return pinned, func() { check(exec.Command(b.bin, "observe", "stop").Run()) }
}
