package main

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// sandboxes measures, in milliseconds, what it takes to contain a command that does nothing:
// Landlock compared with a start without it, and all namespaces compared with bwrap.
func (b *bench) sandboxes() []single {
	took := sync.OnceValue(b.contained)
	return []single{
		{"what Landlock adds to our own start", "ms", 1, func() float64 {
			return milliseconds(took()["landlock"] - took()["open"])
		}},
		{"what a sandbox of true adds, less what bwrap adds", "ms", 2, func() float64 {
			return milliseconds(took()["sandbox"] - took()["bwrap"])
		}},
		{"what our own start takes, for --version, less what true takes", "ms", noFloor, func() float64 {
			return milliseconds(took()["start"] - took()["bare"])
		}},
		{"the limit: what a Go program of a page that starts true in these namespaces adds, less what bwrap adds", "ms", noFloor, func() float64 {
			return milliseconds(took()["page"] - took()["bwrap"])
		}},
		{"the limit: what a Go program of a page that starts itself there, and makes the mounts, Landlock and seccomp, adds, less what bwrap adds", "ms", noFloor, func() float64 {
			return milliseconds(took()["twice"] - took()["bwrap"])
		}},
		{"what a sandbox adds to a run of true, kernel layer off, less what bwrap adds", "ms", 2, func() float64 {
			return milliseconds(took()["run in a sandbox"] - took()["run"] - (took()["bwrap"] - took()["bare"]))
		}},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// page builds the smallest program that can do what a sandbox does, without files, rules and
// an init.
func (b *bench) page() string { return b.build("page", page) }

// twice does the rest too, in a second start of itself, as our sandbox does.
//
//go:embed testdata/twice.go.txt
var twice string

// build builds a program of one file.
func (b *bench) build(name, source string) string {
	dir := filepath.Join(b.dir, name)
	check(os.MkdirAll(dir, 0o755))
	check(os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644))
	bin := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", bin, "main.go")
	build.Dir, build.Stderr = dir, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	check(build.Run())
	return bin
}

const page = `package main

import (
	_ "embed"
	"os"
	"syscall"
)

func main() {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET}
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: attr})
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
`

// contained runs the bare command, bwrap and our sandbox in turns. The result is their
// medians.
func (b *bench) contained() map[string]time.Duration {
	commands := map[string]func() *exec.Cmd{
		"bare":             bare("/bin/true"),
		"bwrap":            bare(bwrap...),
		"sandbox":          bare(b.bin, "sandbox", "--", "/bin/true"),
		"start":            bare(b.bin, "--version"),
		"page":             bare(b.page()),
		"twice":            bare(b.build("twice", twice)),
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
