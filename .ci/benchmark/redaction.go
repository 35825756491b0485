package main

import (
	"os"
	"os/exec"
	"path/filepath"
)

// redaction measures the cost of looking for secrets: the same run with redaction disabled,
// and with a secret to look for.
func (b *bench) redaction(name string, rounds int, flags []string, args ...string) benchCase {
	run := func(more ...string) func() *exec.Cmd {
		all := append(append([]string{"--force", "-o", filepath.Join(b.dir, "redaction.tar.gz")}, flags...), more...)
		command := b.run(all, args...)
		return func() *exec.Cmd {
			cmd := command()
			cmd.Env = append(os.Environ(), "BENCHMARK_API_TOKEN=correct-horse-771-battery")
			return cmd
		}
	}
	return benchCase{name: name, rounds: rounds, maxRatio: 1.03, bare: run("--unsafe-disable-redaction"), ours: run()}
}

// print1GB writes lines such as a build prints.
var print1GB = []string{"sh", "-c",
	`yes "the quick brown fox jumps over the lazy dog 0123456789 /usr/lib/x.so" | head -c 1000000000`}
