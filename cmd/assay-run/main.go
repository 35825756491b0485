// Command assay-run runs a command in its own cgroup, records what it did, and
// seals the evidence into one bundle that anyone can verify offline.
package main

import (
	"os"

	_ "github.com/assay-run/assay-run/cgroup/reexec"
	_ "github.com/assay-run/assay-run/kernel/reexec"
	_ "github.com/assay-run/assay-run/runner/engine/reexec"
)

func main() {
	lazyCollection()
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
