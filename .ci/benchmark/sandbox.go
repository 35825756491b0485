package main

import (
	"os"
	"os/exec"
	"sync"
	"time"
)

// sandboxes measures what containing a command that does nothing takes, in
// milliseconds: Landlock over our own start without it, and every namespace over what
// bwrap adds.
func (b *bench) sandboxes() []single {
	took := sync.OnceValue(b.contained)
	return []single{
		{"what Landlock adds to our own start", "ms", 1, func() float64 {
			return milliseconds(took()["landlock"] - took()["open"])
		}},
		{"what a sandbox of true adds, less what bwrap adds", "ms", 2, func() float64 {
			return milliseconds(took()["sandbox"] - took()["bwrap"])
		}},
		{"what a sandbox adds to a run of true, kernel layer off, less what bwrap adds", "ms", 2, func() float64 {
			return milliseconds(took()["run in a sandbox"] - took()["run"] - (took()["bwrap"] - took()["bare"]))
		}},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// contained takes turns between the bare command, bwrap and ours. The result is the
// medians.
func (b *bench) contained() map[string]time.Duration {
	commands := map[string]func() *exec.Cmd{
		"bare":             bare("/bin/true"),
		"bwrap":            bare(bwrap...),
		"sandbox":          bare(b.bin, "sandbox", "--", "/bin/true"),
		"landlock":         bare(b.bin, "landrun", "--rox", "/", "--rw", os.TempDir(), "--", "/bin/true"),
		"open":             bare(b.bin, "landrun", "--unrestricted-filesystem", "--unrestricted-network", "--unrestricted-scoped", "--", "/bin/true"),
		"run":              b.run([]string{"--kernel", "off"}, "/bin/true"),
		"run in a sandbox": b.run([]string{"--kernel", "off", "--mode", "workspace-write"}, "/bin/true"),
	}
	took, medians := map[string][]time.Duration{}, map[string]time.Duration{}
	for i := range b.rounds(60) + 1 {
		for name, command := range commands {
			if d := b.time(command()); i > 0 || b.quick {
				took[name] = append(took[name], d)
			}
		}
	}
	for name, d := range took {
		medians[name] = median(d)
	}
	return medians
}
