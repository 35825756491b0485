package main

import (
	"os/exec"
	"path/filepath"
	"time"
)

// notify makes a case one of the notify tier's, beside strace of the same calls,
// which it has to stay below.
func (b *bench) notify(c benchCase, maxRatio float64, maxOver time.Duration) benchCase {
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
		name: "notify: " + c.name, rounds: c.rounds, maxRatio: maxRatio, maxOver: maxOver, bare: c.bare, belowOthers: true,
		ours:   through(b.bin, "-q", "--kernel", "notify", "-o", filepath.Join(b.dir, "run.tar.gz"), "--"),
		others: map[string]func() *exec.Cmd{"strace --seccomp-bpf": through("strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=file,process,network")},
	}
}

// notified are the cases of the notify tier, of those that the eBPF tier has.
func (b *bench) notified(all []benchCase) (list []benchCase) {
	for _, c := range all {
		switch c.name {
		case "300,000 opens of one file":
			list = append(list, b.notify(c, 0, opens*13*time.Microsecond)) // an open takes 2 by itself
		case "1,000 spawns":
			list = append(list, b.notify(c, 2, 0))
		case "git clone", "npm install, a web project's 300 packages", "pytest", "go build, cold cache":
			list = append(list, b.notify(c, 1.25, 0))
		}
	}
	return list
}
