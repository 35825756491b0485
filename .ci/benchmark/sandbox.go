package main

import (
	"os/exec"
	"sync"
)

// sandboxes measures what it takes to contain a command that does nothing, all namespaces
// included, compared with bwrap.
func (b *bench) sandboxes() []single {
	over := sync.OnceValue(func() map[string]float64 {
		return b.overBwrap(map[string]func() *exec.Cmd{
			"sandbox":          bare(b.bin, "sandbox", "--", "/bin/true"),
			"run":              b.run([]string{"--kernel", "off"}, "/bin/true"),
			"run in a sandbox": b.run([]string{"--kernel", "off", "--mode", "workspace-write"}, "/bin/true"),
		})
	})
	return []single{
		{"what a sandbox of true adds, over what bwrap adds", "times", 3, func() float64 { return over()["sandbox"] }},
		{"what a sandbox adds to a run of true, kernel layer off, over what bwrap adds", "times", 3, func() float64 {
			return over()["run in a sandbox"] - over()["run"]
		}},
	}
}
