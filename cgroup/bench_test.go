//go:build linux

package cgroup_test

import (
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/assay-run/assay-run/cgroup"
)

// BenchmarkSession times /bin/true bare and in a session of its own, in turns,
// and reports the medians and their difference in µs: what a session costs.
// The "cold" form waits before each turn, so that nothing that the kernel put
// off for the turn before helps this one.
func BenchmarkSession(b *testing.B) {
	h := cgroup.Probe()
	forms := []struct {
		name   string
		limits cgroup.Limits
		guard  bool
		pause  time.Duration
	}{
		{name: "plain"},
		{name: "cold", pause: 50 * time.Millisecond},
		{name: "guard", guard: true},
		{name: "memory and cpu limits", limits: cgroup.Limits{MemoryBytes: 1 << 30, CPUMilli: 2000, BestEffort: true}},
		{name: "pids limit", limits: cgroup.Limits{Pids: 1000, BestEffort: true}},
	}
	for _, f := range forms {
		b.Run(f.name, func(b *testing.B) {
			var bare, in, create, start, end []time.Duration
			for b.Loop() {
				time.Sleep(f.pause)
				t0 := time.Now()
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, time.Since(t0))
				time.Sleep(f.pause)
				t0 = time.Now()
				s, err := h.NewSession(testID()+"-bench", f.limits)
				if err != nil {
					b.Fatal(err)
				}
				var g *cgroup.Guard
				if f.guard {
					if g, err = s.Guard(nil); err != nil {
						b.Fatal(err)
					}
				}
				t1 := time.Now()
				cmd := exec.Command("/bin/true")
				if err := s.Agent().Start(cmd); err != nil {
					b.Fatal(err)
				}
				t2 := time.Now()
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
				t3 := time.Now()
				if err := s.Agent().Kill(); err != nil {
					b.Fatal(err)
				}
				if err := s.Agent().Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				if err := s.Remove(); err != nil {
					b.Fatal(err)
				}
				if g != nil {
					if err := g.Release(); err != nil {
						b.Fatal(err)
					}
				}
				in = append(in, time.Since(t0))
				create, start, end = append(create, t1.Sub(t0)), append(start, t2.Sub(t1)), append(end, time.Since(t3))
			}
			us := func(ds []time.Duration) float64 { return float64(median(ds).Nanoseconds()) / 1e3 }
			b.ReportMetric(us(bare), "bare-µs")
			b.ReportMetric(us(in), "session-µs")
			b.ReportMetric(us(in)-us(bare), "over-µs")
			b.ReportMetric(us(create), "create-µs")
			b.ReportMetric(us(start), "start-µs")
			b.ReportMetric(us(end), "end-µs")
		})
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		cgroup.Probe()
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}
