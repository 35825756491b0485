package main

import (
	"os"

	"github.com/assay-run/assay-run/cgroup"
)

// helperProcess runs what this binary starts itself for: the guard of a run,
// and what must happen between fork and exec. It comes before everything else
// so that such a process stays small.
func helperProcess() (code int, ours bool) {
	return cgroup.Reexec(os.Args)
}
