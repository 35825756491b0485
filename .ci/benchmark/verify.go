package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// linesRSS is the recorder's largest resident set while a child writes ten
// million lines.
func (b *bench) linesRSS() float64 {
	cmd := b.run([]string{"--capture-bytes", "1G"}, "seq", fmt.Sprint(b.rounds(10)*1_000_000))()
	cmd.Dir = b.dir
	defer b.clean()
	return largestSet(cmd)
}

// verifyLarge measures the time and the largest resident set of verify, on a bundle of ten
// million kernel lines.
func (b *bench) verifyLarge() (seconds, mib float64) {
	path := b.largeBundle(b.rounds(10) * 1_000_000)
	defer b.clean()
	cmd := exec.Command(b.bin, "verify", "-q", path)
	cmd.Stderr = os.Stderr
	start := time.Now()
	mib = largestSet(cmd)
	return time.Since(start).Seconds(), mib
}

// judgedOverVerified is the CPU time of gate with the rules for evaluations in that of verify, on a bundle of a million
// kernel lines.
func (b *bench) judgedOverVerified() float64 {
	path := b.largeBundle(b.rounds(10) * 100_000)
	defer b.clean()
	cpu := func(args ...string) float64 {
		cmd := exec.Command(b.bin, append(args, path)...)
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 2 { // nobody knows all about this bundle
			check(err)
		}
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	}
	var over []float64
	for range b.rounds(9) {
		verified := cpu("verify", "-q")
		over = append(over, cpu("gate", "--rules", "builtin:evaluation")/verified)
	}
	return median(over)
}

// inspectRSS is the largest resident set of inspect, on a bundle of a million kernel lines
// about different files.
func (b *bench) inspectRSS(flags ...string) float64 {
	path := b.largeBundle(b.rounds(10) * 100_000)
	defer b.clean()
	return largestSet(exec.Command(b.bin, append(append([]string{"inspect"}, flags...), path)...))
}

// largeBundle seals a bundle with this many kernel lines, written as a run writes them, and an evaluation file.
func (b *bench) largeBundle(lines int) string {
	run := schema.Run{
		RunID: "large", Platform: "linux", AgentShim: "none", Command: []string{"none"}, EnvKeys: []string{},
		Workdir: "/",
		Kernel:  "auto", StartedAt: "2026-01-02T03:04:05Z", Recorder: "assay-run benchmark",
		Output: filepath.Join(b.dir, "large.tar.gz"),
	}
	spool, err := archive.CreateSpool(filepath.Join(b.dir, "spool"), run)
	check(err)
	for i := range lines {
		e := schema.KernelEvent{
			RunID: run.RunID, TNS: int64(i) * 1700, PID: uint32(1000 + i/1000), TID: uint32(1000 + i/1000),
			ExecID: uint64(1 + i/1000),
			Kind:   schema.KindOpen, Value: fmt.Sprintf("/usr/lib/python3/package-%d/module_%d.py", i/977%5000, i%977),
			HasResult: true, Result: int64(i % 40),
		}
		check(spool.Append(schema.KernelPath, func(dst []byte, seq uint64) []byte {
			e.Seq = seq
			return schema.AppendJSON(dst, &e)
		}))
	}
	evaluation, err := schema.Document(schema.Evaluation{Schema: schema.EvaluationV0, RunID: run.RunID,
		Digest: "sha256:" + strings.Repeat("0", 64), Workdir: run.Workdir,
		Evaluation: schema.EvaluationDefinition{Hidden: []string{"/oracle/**"}, Protected: []string{"/app/tests/**"},
			StartCommit: "3f2a9c1d", Others: []string{"/attempts/**"}, Reward: []string{"/logs/reward"}}})
	check(err)
	check(spool.Put(schema.EvaluationPath, evaluation))
	sealed, err := spool.Seal(context.Background()) // this writes the documents
	check(err)
	return sealed.Path
}
