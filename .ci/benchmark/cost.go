package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// ratios compare a command with the bare one. The CPU time is that of all processes, and
// depends less than the wall time on what else runs on the machine.
type ratios struct{ wall, cpu float64 }

// cost is what one execution took.
type cost struct{ wall, cpu time.Duration }

func (c cost) over(bare cost) ratios {
	return ratios{float64(c.wall) / float64(bare.wall), float64(c.cpu) / float64(max(bare.cpu, 1))}
}

func medians(v []ratios) ratios {
	var wall, cpu []float64
	for _, r := range v {
		wall, cpu = append(wall, r.wall), append(cpu, r.cpu)
	}
	return ratios{median(wall), median(cpu)}
}

// cost runs cmd, which has to succeed, and removes the bundle that it made.
func (b *bench) cost(cmd *exec.Cmd) cost {
	defer b.clean()
	return b.execute(cmd)
}

// costOfWhole is the cost of a run, with what is missing from its kernel layer.
func (b *bench) costOfWhole(cmd *exec.Cmd) (cost, missing) {
	defer b.clean()
	c := b.execute(cmd)
	h := b.readHealth()
	if h.KernelLayer == schema.Complete {
		return c, missing{}
	}
	return c, missing{runs: 1, events: h.RingbufDrops}
}

// missing are the runs whose kernel layer is not complete, and the events that they dropped.
type missing struct {
	runs   int
	events uint64
}

func (b *bench) execute(cmd *exec.Cmd) cost {
	if cmd.Dir == "" {
		cmd.Dir = b.dir
	}
	var out strings.Builder
	if cmd.Stdout == nil {
		cmd.Stderr = &out
	}
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		fmt.Fprintf(os.Stderr, "benchmark: %v: %v\n%s", cmd.Args, err, out.String())
		os.Exit(1)
	}
	return cost{took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

func (b *bench) time(cmd *exec.Cmd) time.Duration { return b.cost(cmd).wall }
