package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// crowd measures many runs at once: what they cost other processes and each other, and
// how much memory they take.
func (b *bench) crowd(self string) []single {
	over := sync.OnceValue(func() map[int]float64 { return b.unrelatedByRuns(self) })
	cases := []single{}
	for _, n := range []int{1, 10, 100} {
		cases = append(cases, single{fmt.Sprintf("an unrelated getpid with %d idle runs, over one without", n), "ns",
			120, func() float64 {
				return over()[n]
			}})
	}
	return append(cases,
		single{"what 100 idle runs add to an unrelated getpid, over what 1 adds", "times", 1.15, func() float64 {
			return over()[100] / over()[1]
		}},
		single{"an open of one file inside one of 100 runs, over inside of 1", "times", 1.10, func() float64 {
			return b.insideOf(self, 100) / b.insideOf(self, 1)
		}},
		single{"memory of a run: what one more idle run adds, PSS of runner and guard, and its maps", "MiB", 16,
			b.idleMemory},
		single{"100 idle runs started at once, all started", "s", 3, func() float64 { return b.hundred() }},
	)
}

// idleRun is a run whose command waits until it is killed.
type idleRun struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// idle starts n runs at once, and returns when all their commands have started.
func (b *bench) idle(n int) []idleRun {
	runs := make([]idleRun, n)
	for i := range runs {
		cmd := b.run(nil, "sh", "-c", "echo ready; exec sleep 1000")()
		cmd.Dir = b.dir
		out, err := cmd.StdoutPipe()
		check(err)
		check(cmd.Start())
		runs[i] = idleRun{cmd, bufio.NewReader(out)}
	}
	for _, r := range runs {
		_, err := r.out.ReadString('\n')
		check(err)
	}
	return runs
}

// end ends runs, and checks that each left a valid bundle with a complete kernel layer.
func (b *bench) end(runs []idleRun) {
	for _, r := range runs {
		check(r.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, r := range runs {
		_, _ = io.Copy(io.Discard, r.out)
		_ = r.cmd.Wait() // 143
	}
	bundles := glob(filepath.Join(b.dir, "*.tar.gz"))
	if len(bundles) != len(runs) {
		check(fmt.Errorf("%d bundles of %d runs", len(bundles), len(runs)))
	}
	for _, path := range bundles {
		if out, err := exec.Command(b.bin, "verify", path).CombinedOutput(); err != nil {
			check(fmt.Errorf("verify %s: %w\n%s", path, err, out))
		}
		out, err := exec.Command("tar", "-xzOf", path, "observation-health.json").Output()
		check(err)
		if !strings.Contains(strings.ReplaceAll(string(out), " ", ""), `"kernel_layer":"complete"`) {
			check(fmt.Errorf("%s is not complete: %s", path, out))
		}
	}
	b.clean()
}

func nanoseconds(cmd *exec.Cmd) float64 {
	out, err := cmd.Output()
	check(err)
	ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	check(err)
	return ns
}

// unrelatedByRuns returns, by the number of idle runs, how much longer a getpid of another
// process takes than on an idle host.
func (b *bench) unrelatedByRuns(self string) map[int]float64 {
	loop := func() float64 { return nanoseconds(exec.Command(self, "getpid", "3000000")) }
	over := map[int][]float64{}
	for range b.rounds(7) {
		idle := loop()
		for _, n := range []int{1, 10, 100} {
			runs := b.idle(min(n, b.most()))
			time.Sleep(settle)
			with := loop()
			b.end(runs)
			over[n] = append(over[n], with-idle)
		}
	}
	out := map[int]float64{}
	for n := range over {
		out[n] = median(over[n])
	}
	return out
}

// most is how many runs there are at once at most.
func (b *bench) most() int {
	if b.quick {
		return 20
	}
	return 100
}

// insideOf is the cost of an open inside a run, in nanoseconds, while n runs exist.
func (b *bench) insideOf(self string, n int) float64 {
	if b.quick {
		n = min(n, 10)
	}
	others := b.idle(n)
	defer b.end(others)
	time.Sleep(settle)
	path := filepath.Join(b.dir, "inside")
	check(os.WriteFile(path, nil, 0o644))
	var took []float64
	for range b.rounds(7) {
		out := filepath.Join(b.dir, "inside.out")
		cmd := b.run([]string{"-o", out}, self, "open-time", path, "300000")()
		cmd.Dir = b.dir
		took = append(took, nanoseconds(cmd))
		check(os.Remove(out))
	}
	return median(took)
}

// idleMemory is how much memory each of ten more runs takes, in MiB.
func (b *bench) idleMemory() float64 {
	first := b.idle(10)
	before := memoryOf(first)
	more := b.idle(10)
	all := append(first, more...)
	after := memoryOf(all)
	b.end(all)
	return (after - before) / 10
}

// settle is how long after their start runs are idle and have freed the memory that the
// start took.
const settle = 4 * time.Second

// memoryOf is the PSS of runs and their guards, with the memory of the BPF maps that
// they hold, each counted once, in MiB.
func memoryOf(runs []idleRun) float64 {
	time.Sleep(settle)
	var kib float64
	maps := map[string]float64{}
	for _, r := range runs {
		pids := []int{r.cmd.Process.Pid}
		list, err := exec.Command("pgrep", "-P", strconv.Itoa(pids[0])).Output()
		check(err)
		for _, pid := range strings.Fields(string(list)) {
			exe, _ := os.Readlink("/proc/" + pid + "/exe")
			if own, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pids[0])); exe == own {
				pids = append(pids, number(pid))
			}
		}
		for _, pid := range pids {
			kib += pss(pid)
		}
		for _, info := range glob(fmt.Sprintf("/proc/%d/fdinfo/*", pids[0])) {
			text, err := os.ReadFile(info)
			if err != nil || !strings.Contains(string(text), "map_id:") {
				continue
			}
			maps[word(string(text), "map_id:")] = field(info, "memlock:") / 1024
		}
	}
	for _, k := range maps {
		kib += k
	}
	return kib / 1024
}

// pss is the PSS of a process in KiB, without the BPF maps that are mapped into it.
func pss(pid int) (kib float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	check(err)
	counts := false
	for line := range strings.Lines(string(text)) {
		if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "-") {
			counts = !strings.Contains(line, "anon_inode:bpf-map")
		}
		if counts && strings.HasPrefix(line, "Pss:") {
			v, err := strconv.ParseFloat(word(line, "Pss:"), 64)
			check(err)
			kib += v
		}
	}
	return kib
}

func field(path, name string) float64 {
	text, err := os.ReadFile(path)
	check(err)
	v, err := strconv.ParseFloat(word(string(text), name), 64)
	check(err)
	return v
}

// word is the word after name.
func word(text, name string) string {
	_, rest, _ := strings.Cut(text, name)
	if f := strings.Fields(rest); len(f) > 0 {
		return f[0]
	}
	return "0"
}

// hundred is how long a hundred runs that are started at once take until all their
// commands have started.
func (b *bench) hundred() float64 {
	var took []float64
	for range b.rounds(3) {
		n := 100
		if b.quick {
			n = 20
		}
		start := time.Now()
		runs := b.idle(n)
		took = append(took, time.Since(start).Seconds())
		b.end(runs)
	}
	return median(took)
}
