package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// floorSource is the smallest Go program that starts a command and waits for it.
const floorSource = `package main

import (
	"os"
	"os/exec"
)

func main() {
	if exec.Command(os.Args[1], os.Args[2:]...).Run() != nil {
		os.Exit(1)
	}
}
`

// floor builds that program. A run takes at least two processes of Go programs: the runner
// and the guard.
func (b *bench) floor() func() string {
	return sync.OnceValue(func() string {
		bin := filepath.Join(b.dir, "floor")
		check(os.WriteFile(bin+".go", []byte(floorSource), 0o644))
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", bin, bin+".go")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		cmd.Stderr = os.Stderr
		check(cmd.Run())
		return bin
	})
}
