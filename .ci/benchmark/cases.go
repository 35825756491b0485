package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
)

const opens = 300_000

// cases are the paired measurements. They work on the files in b.files.
func cases(b *bench) []benchCase {
	off := []string{"--kernel", "off"}
	self, err := os.Executable()
	check(err)
	one := filepath.Join(b.files, "0")
	module, err := os.Getwd()
	check(err)
	spawns := []string{"sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done"}
	openOne := []string{self, "open-one", one, "300000"}
	openMany := []string{self, "open-distinct", b.files, "300000"}
	// These come faster than the recorder reads them: some do not fit into the default ring.
	manyEvents := []string{"--kernel-buffer", "32MiB"}

	list := []benchCase{
		b.paired("1,000 spawns", 11, 1.10, nil, spawns),
		b.paired("300,000 opens of one file", 11, 1.4, nil, openOne),
		b.paired("300,000 opens of distinct files", 11, 2.0, manyEvents, openMany),
		b.redaction("redaction of 1 GB of output", 11, off, print1GB...),
		b.redaction("redaction of 300,000 opens of distinct files", 11, manyEvents, openMany...),
		b.redaction("redaction of 1,000 spawns", 11, nil, spawns...),
		b.prepared("go build, cold cache", 3, 1.03, func(dir string) *exec.Cmd {
			cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "out"), "./cmd/assay-run")
			cmd.Dir, cmd.Env = module, append(os.Environ(), "GOCACHE="+filepath.Join(dir, "cache"))
			return cmd
		}),
		b.prepared("git clone", 15, 1.03, func(dir string) *exec.Cmd {
			return exec.Command("git", "clone", "-q", "--no-local", b.repository(), filepath.Join(dir, "clone"))
		}),
		b.prepared("npm install, a server's 70 packages", 7, 0, b.npm(func() string {
			return `{"dependencies":{"express":"4"}}`
		})),
		b.prepared("npm install, 300 packages on disk", 7, 1.03, b.npm(sync.OnceValue(func() string {
			return packages(b.dir)
		}))),
		b.prepared("pytest", 9, 1.05, func(dir string) *exec.Cmd {
			check(os.WriteFile(filepath.Join(dir, "test_it.py"), []byte(pytest), 0o644))
			cmd := exec.Command("/usr/bin/python3", "-m", "pytest", "-q")
			cmd.Dir = dir
			return cmd
		}),
	}
	return slices.Concat(list, b.notified(list), b.agentSession())
}

// pytest is a test suite that computes, writes files and starts processes in the
// proportions of a small project.
const pytest = `
import hashlib, subprocess, pytest

@pytest.mark.parametrize("n", range(200))
def test_work(n, tmp_path):
    f = tmp_path / "f"
    f.write_bytes(bytes(1000))
    d = f.read_bytes()
    for _ in range(15000):
        d = hashlib.sha256(d * 8).digest()
    if n % 20 == 0:
        assert subprocess.run(["true"]).returncode == 0
    assert len(d) == 32
`

// paired measures one command bare and observed, and also under strace and bpftrace.
func (b *bench) paired(name string, rounds int, maxRatio float64, flags, args []string) benchCase {
	return benchCase{
		name: name, rounds: rounds, maxRatio: maxRatio, whole: true, bare: bare(args...), ours: b.run(flags, args...),
		others: map[string]func() *exec.Cmd{
			"strace": bare(append([]string{"strace", "-f", "-o", "/dev/null", "-e",
				"trace=open,openat,openat2,creat,execve,execveat"}, args...)...),
			"bpftrace": func() *exec.Cmd { return b.underBpftrace(args) },
		},
	}
}

// prepared measures a command that needs a fresh directory each time.
func (b *bench) prepared(name string, rounds int, maxRatio float64, command func(dir string) *exec.Cmd) benchCase {
	fresh := func() string {
		dir := filepath.Join(b.dir, "fresh")
		check(os.RemoveAll(dir))
		check(os.MkdirAll(dir, 0o755))
		return dir
	}
	return benchCase{
		name: name, rounds: rounds, maxRatio: maxRatio,
		bare: func() *exec.Cmd { return command(fresh()) },
		ours: func() *exec.Cmd {
			cmd := command(fresh())
			args := append([]string{b.bin, "-q", "-o", filepath.Join(b.dir, "run.tar.gz"), "--"}, cmd.Args...)
			cmd.Path, cmd.Args = b.bin, args
			return cmd
		},
	}
}

// underBpftrace runs args under bpftrace, which prints every open and exec.
func (b *bench) underBpftrace(args []string) *exec.Cmd {
	const script = `tracepoint:syscalls:sys_enter_openat /pid == cpid/ { printf("%d open %s\n", pid, str(args->filename)); }
tracepoint:syscalls:sys_enter_execve { printf("%d exec %s\n", pid, str(args->filename)); }`
	line := ""
	for _, a := range args {
		line += "'" + a + "' "
	}
	file := filepath.Join(b.dir, "command.sh")
	check(os.WriteFile(file, []byte("#!/bin/sh\nexec "+line+"\n"), 0o755))
	// bpftrace looks for tracepoints in debugfs, which is mounted here for it alone.
	return exec.Command("unshare", "--mount", "sh", "-c",
		`mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug && mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing && exec bpftrace -o /dev/null -e "$1" -c "/bin/sh $2"`, "sh", script, file)
}
