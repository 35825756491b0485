package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// notify makes a case for the notify tier. It has to be faster than strace of the same
// calls.
func (b *bench) notify(c benchCase, maxRatio float64, maxTotal time.Duration) benchCase {
	through := func(program string, args ...string) func() *exec.Cmd {
		path, err := exec.LookPath(program)
		check(err)
		return func() *exec.Cmd {
			cmd := c.bare()
			cmd.Path, cmd.Args = path, append(append([]string{program}, args...), cmd.Args...)
			return cmd
		}
	}
	return benchCase{
		name: "notify: " + c.name, rounds: c.rounds, maxRatio: maxRatio, maxTotal: maxTotal, bare: c.bare,
		below: strace,
		ours:  through(b.bin, "-q", "--kernel", "notify", "-o", filepath.Join(b.dir, "run.tar.gz"), "--"),
		others: map[string]func() *exec.Cmd{
			strace: through("strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=file,process,network"),
		},
	}
}

const strace = "strace --seccomp-bpf"

// notified are the eBPF tier's cases that are also measured with the notify tier.
func (b *bench) notified(all []benchCase) (list []benchCase) {
	for _, c := range all {
		switch c.name {
		case "300,000 opens of one file", "300,000 opens of distinct files":
			list = append(list, b.notify(c, 0, opens*15*time.Microsecond))
		case "1,000 spawns":
			list = append(list, b.notify(c, 2, 0))
		case "git clone", "npm install, 300 packages on disk", "pytest":
			list = append(list, b.notify(c, 1.25, 0))
		}
	}
	module, err := os.Getwd()
	check(err)
	build := b.prepared("go build of one package and the standard library, cold cache", 3, 0,
		func(dir string) *exec.Cmd {
			cmd := exec.Command("go", "build", "./schema")
			cmd.Dir, cmd.Env = module, append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache"))
			return cmd
		})
	return append(list, b.notify(build, 1.25, 0))
}
